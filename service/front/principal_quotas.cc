#include "service/front/principal_quotas.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kMinute = absl::Minutes(1);

}  // namespace

absl::StatusOr<PrincipalQuotas::Place> PrincipalQuotas::Acquire(const std::string& principal,
                                                                const PrincipalLimits& limits) {
  if (limits.per_minute == 0 && limits.at_once == 0) return Place();
  std::shared_ptr<Usage>& usage = usages_[principal];
  if (usage == nullptr) usage = std::make_shared<Usage>();
  if (limits.at_once > 0 && usage->running >= limits.at_once) {
    return base::WithRetryAfter(
        absl::ResourceExhaustedError(
            absl::StrCat("'", principal, "' has ", usage->running,
                         " generations running, the limit of its token; wait until one ends")),
        base::kUsualRetryAfter);
  }
  if (limits.per_minute > 0) {
    const absl::Duration now = clock_->Monotonic();
    const double most = static_cast<double>(limits.per_minute);
    const double grown = absl::FDivDuration(now - usage->filled, kMinute) * most;
    usage->left = usage->begun ? std::min(most, usage->left + grown) : most;
    usage->begun = true;
    usage->filled = now;
    if (usage->left < 1) {
      const absl::Duration wait = (1 - usage->left) * kMinute / most;
      return base::WithRetryAfter(
          absl::ResourceExhaustedError(
              absl::StrCat("'", principal, "' has used its rate of ", limits.per_minute,
                           " generations per minute; retry in ",
                           static_cast<int64_t>(std::ceil(absl::ToDoubleSeconds(wait))), " s")),
          wait);
    }
    usage->left -= 1;
  }
  ++usage->running;
  return Place(nullptr, [usage](void*) { --usage->running; });
}

}  // namespace tidepool::service
