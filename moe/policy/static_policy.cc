#include "moe/policy/static_policy.h"

#include <algorithm>

namespace tidepool::moe {

std::vector<ExpertRef> StaticPolicy::Fill(const Residency& residency) {
  const PoolShape& shape = residency.shape();
  std::vector<ExpertRef> experts;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int expert = 0; expert < shape.experts; ++expert) experts.push_back({layer, expert});
  }
  std::sort(experts.begin(), experts.end(), [&](ExpertRef a, ExpertRef b) {
    const int64_t uses_a = uses_[residency.IndexOf(a)];
    const int64_t uses_b = uses_[residency.IndexOf(b)];
    if (uses_a != uses_b) return uses_a > uses_b;
    return a.expert != b.expert ? a.expert < b.expert : a.layer < b.layer;
  });
  experts.resize(shape.slots);
  return experts;
}

void StaticPolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                          std::vector<Swap>* swaps) {
  const absl::Span<const int64_t> values = uses_;
  CollectMissing(needs, residency, values, &missing_);
  SwapByValue(residency, values, &missing_, swaps);
}

std::vector<ExpertRef> StaticPolicy::Shed(const Residency& residency, int64_t slots) {
  return ShedByValue(residency, absl::Span<const int64_t>(uses_), slots);
}

}  // namespace tidepool::moe
