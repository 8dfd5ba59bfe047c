// LowerThreadPriority: for threads whose work may wait.
#ifndef TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
#define TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_

#include <unistd.h>

namespace tidepool::base {

// While other threads need all CPUs, the calling thread gets only about a tenth of one. On Linux,
// other threads of the process are not changed. If the call fails, nothing changes.
inline void LowerThreadPriority() {
  constexpr int kNice = 10;  // its weight is about a tenth of the usual one
  const int done = nice(kNice);
  static_cast<void>(done);
}

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_BACKGROUND_THREAD_H_
