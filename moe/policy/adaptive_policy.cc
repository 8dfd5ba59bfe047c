#include "moe/policy/adaptive_policy.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// More than any that may leave: these are passed over at a glance.
constexpr float kNotResident = std::numeric_limits<float>::infinity();
// By how much the price moves in a forward for each miss of cost 1 that those turned away are
// worth. Chosen on the design half of tests/moe/replay/trace_kinds.h, whose mean moves by less than
// 0.001 between 0.1 and 0.3.
constexpr float kPriceStep = 0.1f;
// More than what a bound and the worth that it bounds lose by rounding where a miss costs 1.
constexpr float kRounding = 1e-4f;
// Where all experts have slots, nothing is to be decided, and learning would only cost each token
// time. Slots may become fewer: one forward in so many is learned from.
constexpr uint8_t kIdleForwards = 8;

// [layers]
std::vector<float> CostsOf(const PoolShape& shape) {
  return shape.miss_cost.empty() ? std::vector<float>(shape.layers, 1.0f) : shape.miss_cost;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape),
      miss_cost_(CostsOf(shape)),
      rounding_(kRounding * *std::max_element(miss_cost_.begin(), miss_cost_.end())),
      price_(static_cast<float>(shape.top_k) / static_cast<float>(shape.experts)),
      worth_(shape.all_experts(), 0.0f),
      bounds_(shape.layers),
      bounds_now_(shape.layers),
      idle_forwards_(shape.layers, 0) {}

std::vector<ExpertRef> AdaptivePolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

void AdaptivePolicy::AppraiseLayer(const Residency& residency, int layer) {
  const ReuseForecast& outlook = predictor_.outlook();
  const int experts = residency.shape().experts;
  const int64_t begin = int64_t{layer} * experts;
  const float* chance = outlook.chance.data() + begin;
  const float* forwards = outlook.forwards.data() + begin;
  float* worth = worth_.data() + begin;
  const int32_t* resident = residency.resident().data() + begin;
  const float wait = WaitFor(layer);
  const float cost = miss_cost_[layer];
  // Only layers to come are computed in this forward.
  const float surplus = layer > last_layer_ ? predictor_.surplus() : 0.0f;
  const int32_t at_least = layer == last_layer_ ? 0 : 1;
  Vec4 least = Vec4{} + kNotResident;
  Vec4 longest = Vec4{};
  int e = 0;
  for (; e + kLanes <= experts; e += kLanes) {
    Int4 is_resident;
    std::memcpy(&is_resident, resident + e, sizeof is_resident);
    const Vec4 held = Load4(forwards + e);
    const Vec4 saved = cost * Load4(chance + e);
    const Vec4 gain = saved - price_ * (held + wait);
    const Vec4 wide_gain = gain + surplus * (cost - saved + price_ * held);
    least = Min4(least, is_resident >= at_least ? gain : Vec4{} + kNotResident);
    longest = Max4(longest, held);
    Store4(is_resident >= at_least ? wide_gain : Vec4{} + kNotResident, worth + e);
  }
  for (; e < experts; ++e) {
    worth[e] = kNotResident;
    longest[0] = std::max(longest[0], forwards[e]);
    if (resident[e] < at_least) continue;
    const float saved = cost * chance[e];
    const float gain = saved - price_ * (forwards[e] + wait);
    least[0] = std::min(least[0], gain);
    worth[e] = gain + surplus * (cost - saved + price_ * forwards[e]);
  }
  const auto of = [](Vec4 v, auto pick) { return pick(pick(v[0], v[1]), pick(v[2], v[3])); };
  // What the layer at hand keeps will be known when it has swapped.
  bounds_[layer] = {.is_known = layer != last_layer_,
                    .worth = of(least, [](float a, float b) { return std::min(a, b); }),
                    .forwards = of(longest, [](float a, float b) { return std::max(a, b); }),
                    .price = price_,
                    .wait = wait};
}

float AdaptivePolicy::WaitFor(int layer) const {
  const int layers = static_cast<int>(bounds_.size());
  const int ahead = (layer - last_layer_ - 1 + layers) % layers + 1;
  return static_cast<float>(ahead) / static_cast<float>(layers);
}

// Since a layer was appraised, residents may have left it; the others are worth what they were but
// for the price and the wait.
float AdaptivePolicy::BoundOf(int layer) const {
  const Bound& bound = bounds_[layer];
  if (!bound.is_known) return -kNotResident;
  const float dearer = std::max(price_ - bound.price, 0.0f);
  const float later = price_ * WaitFor(layer) - bound.price * bound.wait;
  return bound.worth - dearer * bound.forwards - later - rounding_;
}

std::vector<Ranked<float>> AdaptivePolicy::FindVictims(const Residency& residency, int64_t count) {
  LeastWorthy<float> least(count);
  if (count <= 0) return least.Take();
  std::vector<float>& bounds = bounds_now_;
  for (size_t l = 0; l < bounds.size(); ++l) bounds[l] = BoundOf(static_cast<int>(l));
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto lowest = std::min_element(bounds.begin(), bounds.end());
    if (*lowest == kNotResident) break;  // they were all looked at, or have nobody who may leave
    if (least.full() && *lowest > least.worst().worth) break;
    const auto layer = static_cast<int>(lowest - bounds.begin());
    if (layer != last_layer_) AppraiseLayer(residency, layer);
    least.Add(residency, worth_, layer, MayLeave(residency, layer, last_layer_));
    *lowest = kNotResident;
  }
  return least.Take();
}

bool AdaptivePolicy::IsIdle(const Residency& residency) {
  if (residency.shape().slots < residency.shape().all_experts()) return false;
  return ++idle_forwards_[last_layer_] % kIdleForwards != 0;
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  last_layer_ = needs.routing.layer;
  if (!IsIdle(residency)) {
    predictor_.Update(needs, residency, price_ / miss_cost_[last_layer_]);
  }
  AppraiseLayer(residency, last_layer_);
  CollectMissing(needs, residency, absl::Span<const float>(worth_), &missing_);
  if (missing_.empty()) return;
  const auto find = [&](int64_t count) { return FindVictims(residency, count); };
  SwapByWorth(residency, &missing_, find, swaps);
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
  for (int layer = 0; layer < residency.shape().layers; ++layer) AppraiseLayer(residency, layer);
  return ShedByWorth(residency, absl::Span<const float>(worth_), slots);
}

}  // namespace tidepool::moe
