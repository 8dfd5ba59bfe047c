// Functions for threads whose work may wait: they lower the thread's priority, and return its CPU
// time.
#ifndef TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
#define TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_

#include <time.h>

#include "absl/time/time.h"
#include "kernels/base/check.h"

namespace tidepool::base {

// Gives the calling thread the lowest priority at which it still always gets some time. Other
// threads are not changed. If the call fails, nothing changes.
//
// A high niceness alone is not enough. Whenever a thread of a forward pass sleeps, the calling
// thread gets the CPU, and keeps it for the rest of its slice after the other one wakes up. So its
// slice is the shortest that Linux allows (0.1 ms, Linux 6.12 and later), and it is a batch thread,
// which does not interrupt others when it wakes up. SCHED_IDLE would stop it for so long that
// threads would wait for the locks that it holds, such as those of malloc: up to 0.5 s were
// measured. Long work should also call LetOthersRun (background_task.h).
void LowerThreadPriority();

// Returns the CPU time that the calling thread has used.
inline absl::Duration ThreadCpuTime() {
  timespec used = {};
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
