// When a refused caller may come back: said by whoever refuses, in the status itself.
#ifndef TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
#define TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::base {

// No hint is longer: whoever says more knows nothing.
inline constexpr absl::Duration kLongestRetryAfter = absl::Hours(1);

// Where nothing tells when it will be worth while: a look each second costs little.
inline constexpr absl::Duration kUsualRetryAfter = absl::Seconds(1);

// `status` with the hint, in whole milliseconds, brought to [0, kLongestRetryAfter]. Requires: it
// is an error.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// None: the status has no hint.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
