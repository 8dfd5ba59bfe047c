#include "moe/policy/adaptive_policy.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// More than any that may leave: these are passed over at a glance.
constexpr float kNotResident = std::numeric_limits<float>::infinity();
// By how much the price moves in a forward for each hit that those turned away are worth. Chosen
// on the design half of tests/moe/replay/trace_kinds.h, whose mean moves by less than 0.001 between
// 0.1 and 0.3.
constexpr float kPriceStep = 0.1f;

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape),
      price_(static_cast<float>(shape.top_k) / static_cast<float>(shape.experts)),
      worth_(shape.all_experts(), 0.0f) {}

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
      const Vec4 gain = Load4(chance + e) - price_ * (Load4(forwards + e) + wait);
      Store4(is_resident >= least ? gain : Vec4{} + kNotResident, worth + e);
    }
    for (; e < shape.experts; ++e) {
      worth[e] = resident[e] >= least ? chance[e] - price_ * (forwards[e] + wait) : kNotResident;
    }
  }
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  predictor_.Update(needs, residency, price_);
  last_layer_ = needs.routing.layer;
  const absl::Span<const float> worth = worth_;
  CollectMissing(needs, residency, worth, &missing_);
  if (missing_.empty()) return;
  Appraise(residency);
  CollectMissing(needs, residency, worth, &missing_);
  SwapByWorth(residency, worth, last_layer_, &missing_, swaps);
  LearnPrice(residency, *swaps);
}

void AdaptivePolicy::LearnPrice(const Residency& residency, absl::Span<const Swap> swaps) {
  float worth = 0;
  int turned_away = 0;
  for (const Swap& swap : swaps) {
    if (!swap.victim.valid()) continue;
    worth += worth_[residency.IndexOf(swap.victim)];
    ++turned_away;
  }
  // Those that stay come first.
  for (size_t i = swaps.size(); i < missing_.size(); ++i) {
    worth += missing_[i].worth;
    ++turned_away;
  }
  if (turned_away == 0) return;
  const float step = kPriceStep / static_cast<float>(residency.shape().layers);
  price_ = std::max(0.0f, price_ + step * worth / static_cast<float>(turned_away));
}

std::vector<ExpertRef> AdaptivePolicy::Shed(const Residency& residency, int64_t slots) {
  Appraise(residency);
  return ShedByWorth(residency, absl::Span<const float>(worth_), slots);
}

}  // namespace tidepool::moe
