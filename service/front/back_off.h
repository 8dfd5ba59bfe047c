// BackOff: the time to wait before a retry. It doubles with each failure. Because of a random
// factor, clients that failed together do not retry together (M. Brooker, "Exponential Backoff And
// Jitter", AWS Architecture Blog, 2015).
#ifndef TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_
#define TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace tidepool::service {

struct BackOff {
  absl::Duration first;
  absl::Duration last;  // maximum time, before it is multiplied by the random factor

  // Returns the time to wait after `failures` failures. Requires: failures >= 1. The random factor
  // is between 0.5 and 1.5.
  absl::Duration Wait(int failures, std::minstd_rand* random) const {
    absl::Duration wait = first;
    for (int i = 1; i < failures && wait < last; ++i) wait *= 2;
    return std::min(wait, last) * std::uniform_real_distribution<double>(0.5, 1.5)(*random);
  }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_BACK_OFF_H_
