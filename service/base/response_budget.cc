#include "service/base/response_budget.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

absl::Status Refused(const std::string& reason) {
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          reason, "; use streaming, request fewer tokens or logprobs, or retry later")),
      base::kUsualRetryAfter);
}

}  // namespace

struct WholeResponse::All {
  explicit All(int64_t max) : max_bytes(max) {}

  // Adds `more` bytes, which may be negative. Returns the total of all principals, and the total of
  // this principal.
  std::pair<int64_t, int64_t> Add(const std::string& principal, int64_t more) {
    base::MutexLock lock(&mutex);
    bytes += more;
    const auto own = bytes_by.try_emplace(principal, 0).first;
    const int64_t its_bytes = own->second += more;
    if (its_bytes == 0) bytes_by.erase(own);
    return {bytes, its_bytes};
  }

  const int64_t max_bytes;
  base::Mutex mutex;
  int64_t bytes TIDEPOOL_GUARDED_BY(mutex) = 0;
  // by principal; no value is 0
  std::map<std::string, int64_t> bytes_by TIDEPOOL_GUARDED_BY(mutex);
};

absl::Status WholeResponse::Grow(int64_t bytes) {
  bytes_ += bytes;
  const auto [all, own] = all_->Add(principal_, bytes);
  if (bytes_ <= kSmallBytes) return absl::OkStatus();
  const int64_t free = all_->max_bytes - all;
  if (free < 0) {
    return Refused(
        absl::StrCat("the unsent responses exceed the limit of ", all_->max_bytes, " bytes"));
  }
  if (principal_.empty() || own <= free) return absl::OkStatus();
  return Refused(absl::StrCat("of the ", all, " bytes of unsent responses, '", principal_, "' has ",
                              own, "; the rest is reserved for others"));
}

void WholeResponse::Clear() {
  if (bytes_ != 0) all_->Add(principal_, -std::exchange(bytes_, 0));
}

ResponseBudget::ResponseBudget(int64_t max_bytes)
    : all_(std::make_shared<WholeResponse::All>(max_bytes)) {}

int64_t ResponseBudget::bytes() const {
  base::MutexLock lock(&all_->mutex);
  return all_->bytes;
}

}  // namespace tidepool::service
