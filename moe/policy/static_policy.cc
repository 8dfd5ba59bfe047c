#include "moe/policy/static_policy.h"

#include <algorithm>

namespace tidepool::moe {

std::vector<ExpertRef> StaticPolicy::Fill(const Residency& residency) {
  const PoolShape& shape = residency.shape();
  std::vector<ExpertRef> experts;
  // Each layer first gets its most used experts, up to the floor. All layers compete for the other
  // slots.
  std::vector<ExpertRef> others;
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::vector<ExpertRef> of_layer;
    for (int expert = 0; expert < shape.experts; ++expert) of_layer.push_back({layer, expert});
    std::stable_sort(of_layer.begin(), of_layer.end(), [&](ExpertRef a, ExpertRef b) {
      return uses_[residency.IndexOf(a)] > uses_[residency.IndexOf(b)];
    });
    experts.insert(experts.end(), of_layer.begin(), of_layer.begin() + shape.floor);
    others.insert(others.end(), of_layer.begin() + shape.floor, of_layer.end());
  }
  std::sort(others.begin(), others.end(), [&](ExpertRef a, ExpertRef b) {
    const int64_t uses_a = uses_[residency.IndexOf(a)];
    const int64_t uses_b = uses_[residency.IndexOf(b)];
    if (uses_a != uses_b) return uses_a > uses_b;
    return a.expert != b.expert ? a.expert < b.expert : a.layer < b.layer;
  });
  const int64_t rest = shape.slots - static_cast<int64_t>(experts.size());
  experts.insert(experts.end(), others.begin(), others.begin() + rest);
  return experts;
}

void StaticPolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                          std::vector<Swap>* swaps) {
  const absl::Span<const int64_t> values = uses_;
  CollectMissing(needs, residency, values, &missing_);
  SwapByValue(residency, values, needs.routing.layer, &missing_, swaps);
}

std::vector<ExpertRef> StaticPolicy::Shed(const Residency& residency, int64_t slots) {
  return ShedByValue(residency, absl::Span<const int64_t>(uses_), slots);
}

}  // namespace tidepool::moe
