// For threads whose work may wait: a lower priority, pauses, and the CPU time that they use.
#ifndef TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
#define TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_

#include "absl/time/time.h"

namespace tidepool::base {

// While other threads need all CPUs, the calling thread gets only about a tenth of one. On Linux,
// other threads of the process are not changed. If the call fails, nothing changes.
void LowerThreadPriority();

// Long work calls this again and again, at best each 0.1 ms. A thread that called
// LowerThreadPriority then lets the threads that wait for its CPU run, each 0.5 ms. Without this, it
// keeps the CPU until the kernel's next timer tick, which may be 4 ms later whatever its priority,
// and all threads of a forward pass wait for the one whose CPU it is. A short task does not pause:
// pauses begin after 20 ms of CPU time, which come back slowly. In other threads, it does nothing.
void PauseIfBackground();

// Returns the CPU time that the calling thread has used.
absl::Duration ThreadCpuTime();

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
