// Retry hints in statuses: when a refused caller may retry.
#ifndef TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
#define TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::base {

// Maximum hint, because longer estimates are unreliable.
inline constexpr absl::Duration kLongestRetryAfter = absl::Hours(1);

// Used if nothing better is known: a retry every second costs little.
inline constexpr absl::Duration kUsualRetryAfter = absl::Seconds(1);

// Adds the hint to `status`, in whole milliseconds, clamped to [0, kLongestRetryAfter]. Requires:
// it is an error.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// Returns nullopt if the status has no hint.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
