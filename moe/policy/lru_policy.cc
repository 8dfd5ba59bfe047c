#include "moe/policy/lru_policy.h"

namespace tidepool::moe {

std::vector<ExpertRef> LruPolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void LruPolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                       std::vector<Swap>* swaps) {
  ++now_;
  for (const ExpertNeed& need : needs.experts) {
    last_use_[residency.IndexOf({needs.routing.layer, need.expert})] = now_;
  }
  const absl::Span<const int64_t> worth = last_use_;
  CollectMissing(needs, residency, worth, &missing_);
  SwapByWorth(residency, worth, needs.routing.layer, &missing_, swaps);
}

std::vector<ExpertRef> LruPolicy::Shed(const Residency& residency, int64_t slots) {
  return ShedByWorth(residency, absl::Span<const int64_t>(last_use_), slots);
}

}  // namespace tidepool::moe
