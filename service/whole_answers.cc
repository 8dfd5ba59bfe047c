#include "service/whole_answers.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {

absl::Status WholeAnswer::Grow(int64_t bytes) {
  bytes_ += bytes;
  if ((all_->bytes += bytes) <= all_->most_bytes || bytes_ <= kSmallBytes) return absl::OkStatus();
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "the server collects as many bytes of answers as it can hold, ", all_->most_bytes,
          "; ask for a stream, or for fewer tokens or logprobs, or retry later")),
      base::kUsualRetryAfter);
}

void WholeAnswer::Clear() {
  if (bytes_ != 0) all_->bytes -= std::exchange(bytes_, 0);
}

}  // namespace tidepool::service
