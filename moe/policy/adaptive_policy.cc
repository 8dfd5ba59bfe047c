#include "moe/policy/adaptive_policy.h"

#include <algorithm>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// How much the price changes in one forward pass, relative to the mean value of the experts that
// get no slot.
constexpr float kPriceStep = 0.2f;
// If all experts have slots, there is nothing to decide. But the number of slots may become smaller
// later. So the policy still learns, but only from one in this number of forward passes.
constexpr uint8_t kIdleForwards = 8;

// Returns the cost of a miss for each layer, [layers].
std::vector<float> CostsOf(const PoolShape& shape) {
  return shape.miss_cost.empty() ? std::vector<float>(shape.layers, 1.0f) : shape.miss_cost;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape),
      miss_cost_(CostsOf(shape)),
      price_(static_cast<float>(shape.top_k) / static_cast<float>(shape.experts)),
      values_(shape.all_experts() + kLanes, 0.0f),
      idle_forwards_(shape.layers, 0) {}

std::vector<ExpertRef> AdaptivePolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void AdaptivePolicy::ComputeValues(const PoolShape& shape) {
  const ReuseForecast& forecast = predictor_.forecast();
  for (int layer = 0; layer < shape.layers; ++layer) {
    // The number of layers that run until this layer has run again.
    const int ahead = (layer - last_layer_ - 1 + shape.layers) % shape.layers + 1;
    const float wait = static_cast<float>(ahead) / static_cast<float>(shape.layers);
    const float cost = miss_cost_[layer];
    // In this forward pass, only later layers will still run.
    const float excess = layer > last_layer_ ? predictor_.excess_demand() : 0.0f;
    const int64_t end = (int64_t{layer} + 1) * shape.experts;
    // The last vector may write past the end of the layer. What it writes there is padding, or is
    // overwritten by the next layer.
    for (int64_t i = end - shape.experts; i < end; i += kLanes) {
      const Vec4 saved = cost * Load4(&forecast.chance[i]);
      const Vec4 rent = price_ * Load4(&forecast.forwards[i]);
      Store4(saved - rent - price_ * wait + excess * (cost - saved + rent), &values_[i]);
    }
  }
}

bool AdaptivePolicy::SkipsLearning(const Residency& residency) {
  if (residency.shape().slots < residency.shape().all_experts()) return false;
  return ++idle_forwards_[last_layer_] % kIdleForwards != 0;
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  last_layer_ = needs.routing.layer;
  if (!SkipsLearning(residency)) {
    predictor_.Update(needs, residency, price_ / miss_cost_[last_layer_]);
  }
  const auto is_hit = [&](const ExpertNeed& need) {
    return residency.IsResident({last_layer_, need.expert});
  };
  if (std::all_of(needs.experts.begin(), needs.experts.end(), is_hit)) return;
  ComputeValues(residency.shape());
  const absl::Span<const float> values = values_;
  CollectMissing(needs, residency, values, &missing_);
  SwapByValue(residency, values, last_layer_, &missing_, swaps);
  UpdatePrice(residency, *swaps);
}

void AdaptivePolicy::UpdatePrice(const Residency& residency, absl::Span<const Swap> swaps) {
  float sum = 0;
  int without_slot = 0;
  for (const Swap& swap : swaps) {
    if (!swap.victim.valid()) continue;
    sum += values_[residency.IndexOf(swap.victim)];
    ++without_slot;
  }
  // SwapByValue has moved the misses that become resident to the front.
  for (size_t i = swaps.size(); i < missing_.size(); ++i) {
    sum += missing_[i].value;
    ++without_slot;
  }
  if (without_slot == 0) return;
  const float step = kPriceStep / static_cast<float>(residency.shape().layers);
  price_ = std::max(0.0f, price_ + step * sum / static_cast<float>(without_slot));
}

std::vector<ExpertRef> AdaptivePolicy::Shed(const Residency& residency, int64_t slots) {
  ComputeValues(residency.shape());
  return ShedByValue(residency, absl::Span<const float>(values_), slots);
}

}  // namespace tidepool::moe
