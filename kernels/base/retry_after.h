// Retry hints in statuses: how long a refused caller should wait before it retries.
#ifndef TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
#define TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::base {

// The maximum hint. Longer estimates are unreliable.
inline constexpr absl::Duration kLongestRetryAfter = absl::Hours(1);

// The hint if there is no better estimate. A retry every second costs little.
inline constexpr absl::Duration kUsualRetryAfter = absl::Seconds(1);

// Adds the hint to `status`, in whole milliseconds, clamped to [0, kLongestRetryAfter]. Requires:
// `status` is an error.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// Returns the hint of a status, or nullopt if it has none.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_RETRY_AFTER_H_
