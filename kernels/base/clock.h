// Clock: the time as a dependency, so that a test can control it.
#ifndef TIDEPOOL_KERNELS_BASE_CLOCK_H_
#define TIDEPOOL_KERNELS_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace tidepool::base {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never decreases. Its zero is arbitrary. For durations and deadlines.
  virtual absl::Duration Monotonic() const = 0;
  // Wall time, which may jump. For time stamps that people read.
  virtual absl::Time Now() const = 0;

  // The machine's clock; never destroyed.
  static const Clock& Real();
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_CLOCK_H_
