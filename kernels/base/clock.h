// Clock: an interface to the time, so that a test can replace the time.
#ifndef TIDEPOOL_KERNELS_BASE_CLOCK_H_
#define TIDEPOOL_KERNELS_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace tidepool::base {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // A time that never decreases, for durations and deadlines. Its zero is arbitrary.
  virtual absl::Duration Monotonic() const = 0;
  // The wall time, for time stamps that people read. It may jump.
  virtual absl::Time Now() const = 0;

  // The machine's clock. It is never destroyed.
  static const Clock& Real();
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_CLOCK_H_
