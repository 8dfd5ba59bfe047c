#include "kernels/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace tidepool::base {
namespace {

class RealClock final : public Clock {
 public:
  absl::Duration Monotonic() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace

const Clock& Clock::Real() {
  static const RealClock clock;
  return clock;
}

}  // namespace tidepool::base
