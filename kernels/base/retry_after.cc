#include "kernels/base/retry_after.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tidepool::base {
namespace {

constexpr char kPayload[] = "tidepool/retry-after-ms";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration wait) {
  const absl::Duration hint = std::clamp(wait, absl::ZeroDuration(), kLongestRetryAfter);
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(hint))));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int64_t milliseconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) {
    return std::nullopt;
  }
  return absl::Milliseconds(milliseconds);
}

}  // namespace tidepool::base
