// ManualClock: a clock that advances only when the test says so.
#ifndef TIDEPOOL_TESTS_FAKES_MANUAL_CLOCK_H_
#define TIDEPOOL_TESTS_FAKES_MANUAL_CLOCK_H_

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace tidepool::fakes {

// Thread-safe. Begins at the Unix epoch. Both clocks advance together, except for jumps of the wall
// clock.
class ManualClock final : public base::Clock {
 public:
  absl::Duration Monotonic() const override {
    base::MutexLock lock(&mutex_);
    return elapsed_;
  }
  absl::Time Now() const override {
    base::MutexLock lock(&mutex_);
    return absl::UnixEpoch() + elapsed_ + jumped_;
  }

  void Advance(absl::Duration time) {
    base::MutexLock lock(&mutex_);
    elapsed_ += time;
  }
  // Simulates a change of the wall clock.
  void JumpWall(absl::Duration by) {
    base::MutexLock lock(&mutex_);
    jumped_ += by;
  }

 private:
  mutable base::Mutex mutex_;
  absl::Duration elapsed_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration jumped_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::fakes

#endif  // TIDEPOOL_TESTS_FAKES_MANUAL_CLOCK_H_
