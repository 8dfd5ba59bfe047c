// Allowance: limits the share of the time that some work may take, but lets bursts pass.
#ifndef TIDEPOOL_ENGINE_ALLOWANCE_H_
#define TIDEPOOL_ENGINE_ALLOWANCE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace tidepool::engine {

// Thread-compatible.
class Allowance {
 public:
  // The allowance begins at `max`, and grows by `share` of the elapsed time, up to `max`. `now` is
  // the time of one clock in all calls.
  Allowance(absl::Duration now, absl::Duration max, double share)
      : max_(max), share_(share), left_(max), grown_at_(now) {}

  // Returns what is left.
  absl::Duration Left(absl::Duration now) {
    left_ = std::min(max_, left_ + share_ * (now - grown_at_));
    grown_at_ = now;
    return left_;
  }
  // The work has taken `time`. What is left does not become negative.
  void Use(absl::Duration time) { left_ -= std::min(time, left_); }

 private:
  const absl::Duration max_;
  const double share_;
  absl::Duration left_;
  absl::Duration grown_at_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ALLOWANCE_H_
