// Functions for threads whose work may wait: they lower the thread's priority, and return its CPU
// time.
#ifndef TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
#define TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_

#include <time.h>
#include <unistd.h>

#include "absl/time/time.h"
#include "kernels/base/check.h"

namespace tidepool::base {

// While other threads need all CPUs, the calling thread gets only about a tenth of one. On Linux,
// other threads of the process are not changed. If the call fails, nothing changes.
inline void LowerThreadPriority() {
  constexpr int kNice = 10;  // its weight is about a tenth of the usual one
  const int done = nice(kNice);
  static_cast<void>(done);
}

// Returns the CPU time that the calling thread has used.
inline absl::Duration ThreadCpuTime() {
  timespec used = {};
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
