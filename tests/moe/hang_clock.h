// HangClock: a clock for tests with reads that do not end.
#ifndef TIDEPOOL_TESTS_MOE_HANG_CLOCK_H_
#define TIDEPOOL_TESTS_MOE_HANG_CLOCK_H_

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "tests/moe/puppet_reader.h"

namespace tidepool::moe {

// Thread-safe. If the reader has only held reads, each call of the clock advances the time. So no
// other read can be late, however slow the machine is.
class HangClock final : public base::Clock {
 public:
  explicit HangClock(absl::Duration tick) : tick_(tick) {}

  void Watch(const PuppetReader* reader) {
    base::MutexLock lock(&mutex_);
    reader_ = reader;
  }
  absl::Duration Monotonic() const override {
    base::MutexLock lock(&mutex_);
    if (reader_ != nullptr && reader_->held() > 0 && reader_->idle()) elapsed_ += tick_;
    return elapsed_;
  }
  absl::Time Now() const override { return absl::UnixEpoch() + Monotonic(); }

 private:
  const absl::Duration tick_;
  mutable base::Mutex mutex_;
  const PuppetReader* reader_ TIDEPOOL_GUARDED_BY(mutex_) = nullptr;
  mutable absl::Duration elapsed_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_HANG_CLOCK_H_
