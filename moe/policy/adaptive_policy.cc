#include "moe/policy/adaptive_policy.h"

#include <cstring>
#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// More than any that may leave: these are passed over at a glance.
constexpr float kNotResident = std::numeric_limits<float>::infinity();

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape), worth_(shape.all_experts(), 0.0f) {}

std::vector<ExpertRef> AdaptivePolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void AdaptivePolicy::Appraise(const Residency& residency) {
  const PoolShape& shape = residency.shape();
  const Outlook& outlook = predictor_.outlook();
  for (int l = 0; l < shape.layers; ++l) {
    const int ahead = (l - last_layer_ - 1 + shape.layers) % shape.layers + 1;
    const float wait = static_cast<float>(ahead) / static_cast<float>(shape.layers);
    const int64_t begin = int64_t{l} * shape.experts;
    const float* chance = outlook.chance.data() + begin;
    const float* forwards = outlook.forwards.data() + begin;
    float* worth = worth_.data() + begin;
    const int32_t* resident = residency.resident().data() + begin;
    const int32_t least = l == last_layer_ ? 0 : 1;
    int e = 0;
    for (; e + kLanes <= shape.experts; e += kLanes) {
      Int4 is_resident;
      std::memcpy(&is_resident, resident + e, sizeof is_resident);
      const Vec4 ratio = Load4(chance + e) / (Load4(forwards + e) + wait);
      Store4(is_resident >= least ? ratio : Vec4{} + kNotResident, worth + e);
    }
    for (; e < shape.experts; ++e) {
      worth[e] = resident[e] >= least ? chance[e] / (forwards[e] + wait) : kNotResident;
    }
  }
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  predictor_.Update(needs, residency);
  last_layer_ = needs.routing.layer;
  const absl::Span<const float> worth = worth_;
  CollectMissing(needs, residency, worth, &missing_);
  if (missing_.empty()) return;
  Appraise(residency);
  CollectMissing(needs, residency, worth, &missing_);
  SwapByWorth(residency, worth, last_layer_, &missing_, swaps);
}

std::vector<ExpertRef> AdaptivePolicy::Shed(const Residency& residency, int64_t slots) {
  Appraise(residency);
  return ShedByWorth(residency, absl::Span<const float>(worth_), slots);
}

}  // namespace tidepool::moe
