#include "moe/policy/lru_policy.h"

#include <algorithm>

namespace tidepool::moe {

std::vector<ExpertRef> LruPolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void LruPolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                       std::vector<Swap>* swaps) {
  ++now_;
  const int layer = needs.routing.layer;
  if (!has_run_[layer]) {
    has_run_[layer] = true;
    std::fill_n(last_use_.begin() + residency.IndexOf({layer, 0}), residency.shape().experts, 0);
  }
  for (const ExpertNeed& need : needs.experts) {
    last_use_[residency.IndexOf({layer, need.expert})] = now_;
  }
  const absl::Span<const int64_t> values = last_use_;
  CollectMissing(needs, residency, values, &missing_);
  SwapByValue(residency, values, &missing_, swaps);
}

std::vector<ExpertRef> LruPolicy::Shed(const Residency& residency, int64_t slots) {
  return ShedByValue(residency, absl::Span<const int64_t>(last_use_), slots);
}

}  // namespace tidepool::moe
