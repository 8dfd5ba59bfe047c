#include "moe/policy/adaptive_policy.h"

namespace tidepool::moe {

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape), worth_(shape.all_experts(), 0.0f) {}

std::vector<ExpertRef> AdaptivePolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void AdaptivePolicy::Appraise(const PoolShape& shape, int layer) {
  const Outlook& outlook = predictor_.outlook();
  for (int l = 0; l < shape.layers; ++l) {
    const int ahead = (l - layer - 1 + shape.layers) % shape.layers + 1;
    const float wait = static_cast<float>(ahead) / static_cast<float>(shape.layers);
    const int64_t begin = int64_t{l} * shape.experts;
    const float* chance = outlook.chance.data() + begin;
    const float* forwards = outlook.forwards.data() + begin;
    float* worth = worth_.data() + begin;
    for (int e = 0; e < shape.experts; ++e) worth[e] = chance[e] / (forwards[e] + wait);
  }
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  predictor_.Update(needs);
  last_layer_ = needs.routing.layer;
  const absl::Span<const float> worth = worth_;
  CollectMissing(needs, residency, worth, &missing_);
  if (missing_.empty()) return;
  Appraise(residency.shape(), last_layer_);
  CollectMissing(needs, residency, worth, &missing_);
  SwapByWorth(residency, worth, last_layer_, &missing_, swaps);
}

std::vector<ExpertRef> AdaptivePolicy::Shed(const Residency& residency, int64_t slots) {
  Appraise(residency.shape(), last_layer_);
  return ShedByWorth(residency, absl::Span<const float>(worth_), slots);
}

}  // namespace tidepool::moe
