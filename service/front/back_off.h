// BackOff: how long to wait before the next try. Doubles from one to the next and is spread by
// chance, so that those who failed together do not come back together (M. Brooker, "Exponential
// Backoff And Jitter", AWS Architecture Blog, 2015).
#ifndef TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_
#define TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace tidepool::service {

struct BackOff {
  absl::Duration first;
  absl::Duration last;  // no wait is longer, its spread aside

  // After so many failures, at least 1: half to one and a half times the wait.
  absl::Duration Wait(int failures, std::minstd_rand* random) const {
    absl::Duration wait = first;
    for (int i = 1; i < failures && wait < last; ++i) wait *= 2;
    return std::min(wait, last) * std::uniform_real_distribution<double>(0.5, 1.5)(*random);
  }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_
