#include "moe/policy/adaptive_policy.h"

#include <algorithm>
#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// Change of the price in one forward pass, relative to the mean value of the experts that get no
// slot.
constexpr float kPriceStep = 0.2f;
// If all experts have slots, there is nothing to decide. But the number of slots may become smaller
// later. So the policy still learns, but only from one in this number of forward passes.
constexpr uint8_t kIdleForwards = 8;
// Drafts are also finished if they are worth more than the last victims by at most this share of
// the price.
constexpr float kMargin = 0.5f;
// Rounding changes a value by less than this share of its terms.
constexpr float kRounding = 1e-5f;

// Returns the cost of a miss for each layer, [layers].
std::vector<float> CostsOf(const PoolShape& shape) {
  return shape.miss_cost.empty() ? std::vector<float>(shape.layers, 1.0f) : shape.miss_cost;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PoolShape& shape)
    : predictor_(shape),
      miss_cost_(CostsOf(shape)),
      price_(static_cast<float>(shape.top_k) / static_cast<float>(shape.experts)),
      values_(shape.all_experts(), 0.0f),
      idle_forwards_(shape.layers, 0) {}

std::vector<ExpertRef> AdaptivePolicy::Fill(const Residency& residency) {
  return FillEvenly(residency.shape());
}

AdaptivePolicy::Terms AdaptivePolicy::TermsOf(const PoolShape& shape, int layer) const {
  // The number of layers that run until this layer has run again.
  const int ahead = (layer - last_layer_ - 1 + shape.layers) % shape.layers + 1;
  const float wait = static_cast<float>(ahead) / static_cast<float>(shape.layers);
  // In this forward pass, only later layers will still run.
  const float excess = layer > last_layer_ ? predictor_.excess_demand() : 0.0f;
  return {miss_cost_[layer], price_ * wait, excess};
}

template <typename T>
T AdaptivePolicy::Value(const Terms& terms, T chance, T forwards) const {
  const T saved = terms.cost * chance;
  const T rent = price_ * forwards;
  return saved - rent - terms.rent + terms.excess * (terms.cost - saved + rent);
}

void AdaptivePolicy::ComputeValues(const PoolShape& shape, int layer) {
  const ReuseForecast& forecast = predictor_.forecast();
  const Terms terms = TermsOf(shape, layer);
  const int64_t end = (int64_t{layer} + 1) * shape.experts;
  const float loss = MaxLoss(layer);
  int64_t i = end - shape.experts;
  for (; i + kLanes <= end; i += kLanes) {
    const Vec4 value = Value(terms, Load4(&forecast.chance[i]), Load4(&forecast.forwards[i]));
    Store4(value - loss * Load4(&forecast.is_draft[i]), &values_[i]);
  }
  for (; i < end; ++i) {
    const float value = Value(terms, forecast.chance[i], forecast.forwards[i]);
    values_[i] = value - loss * forecast.is_draft[i];
  }
}

bool AdaptivePolicy::SkipsLearning(const Residency& residency) {
  if (residency.shape().slots < residency.shape().all_experts()) return false;
  return ++idle_forwards_[last_layer_] % kIdleForwards != 0;
}

void AdaptivePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                            std::vector<Swap>* swaps) {
  last_layer_ = needs.routing.layer;
  if (SkipsLearning(residency)) {
    predictor_.Skip(last_layer_);
  } else {
    predictor_.Update(needs, residency, price_ / miss_cost_[last_layer_]);
  }
  drafts_.clear();
  bool all_hits = true;
  for (const ExpertNeed& need : needs.experts) {
    const ExpertRef ref{last_layer_, need.expert};
    if (residency.IsResident(ref)) continue;
    all_hits = false;
    if (predictor_.forecast().is_draft[residency.IndexOf(ref)]) drafts_.push_back(need.expert);
  }
  if (all_hits) return;
  predictor_.Finish(last_layer_, drafts_);
  ComputeValues(residency.shape(), last_layer_);
  CollectMissing(needs, residency, absl::Span<const float>(values_), &missing_);
  const auto find_victims = [&](int64_t count, float value) {
    return FindVictims(residency, count, value);
  };
  SwapByValue(residency, find_victims, &missing_, swaps);
  UpdatePrice(residency, *swaps);
}

float AdaptivePolicy::MaxLoss(int layer) const {
  const ForecastLimits& limits = predictor_.limits(layer);
  const float cost = miss_cost_[layer];
  // At a higher price, a finished forecast that holds the slot for long loses more than its draft.
  const float rise = std::max(0.0f, price_ - limits.slot_price * cost);
  return rise * limits.max_forwards + kRounding * (cost + price_ * limits.max_forwards);
}

// Layers are visited in the order of the least values that their residents may have, so most layers
// are never visited. First, only the drafts that are worth about as little as the last victims are
// finished. Usually, all other drafts are then worth at least as much as the victims. Otherwise,
// all drafts that may be worth less than the victims are finished.
std::vector<Ranked<float>> AdaptivePolicy::FindVictims(const Residency& residency, int64_t count,
                                                       float value) {
  const PoolShape& shape = residency.shape();
  visits_.clear();
  for (int layer = 0; layer < shape.layers; ++layer) {
    const float chance = predictor_.limits(layer).least_chance;
    visits_.push_back({Value(TermsOf(shape, layer), chance, 0.0f) - MaxLoss(layer), layer});
  }
  const auto is_later = [](const Ranked<float>& a, const Ranked<float>& b) { return b < a; };
  const auto is_draft = [&](const Ranked<float>& victim) {
    return victim.value <= value && predictor_.forecast().is_draft[victim.index] != 0;
  };
  for (float finished = std::min(value, usual_value_);; finished = value) {
    LeastValuable<float> least(count);
    // A heap, because most layers are never visited.
    std::make_heap(visits_.begin(), visits_.end(), is_later);
    for (auto end = visits_.end(); end != visits_.begin(); --end) {
      const Ranked<float> visit = visits_.front();
      const float most = least.full() ? std::min(value, least.worst().value) : value;
      if (visit.value > most) break;
      const auto layer = static_cast<int>(visit.index);
      FinishBelow(residency, layer, std::min(most, finished));
      least.Add(residency, values_, layer);
      std::pop_heap(visits_.begin(), end, is_later);
    }
    std::vector<Ranked<float>> victims = least.Take();
    if (std::any_of(victims.begin(), victims.end(), is_draft)) continue;
    if (!victims.empty()) usual_value_ = victims.back().value + kMargin * price_;
    return victims;
  }
}

void AdaptivePolicy::FinishBelow(const Residency& residency, int layer, float value) {
  const PoolShape& shape = residency.shape();
  const ReuseForecast& forecast = predictor_.forecast();
  ComputeValues(shape, layer);
  drafts_.clear();
  const int64_t begin = int64_t{layer} * shape.experts;
  const float* values = &values_[begin];
  const int32_t* resident = &residency.resident()[begin];
  const float* is_draft = &forecast.is_draft[begin];
  for (int32_t e = 0; e < shape.experts; ++e) {
    // Most experts are skipped, four at a time.
    if (e + kLanes <= shape.experts &&
        !AnyOf4((Load4(values + e) <= value) & (LoadInt4(resident + e) != 0) &
                (Load4(is_draft + e) != 0))) {
      e += kLanes - 1;
      continue;
    }
    if (values[e] <= value && resident[e] != 0 && is_draft[e] != 0) drafts_.push_back(e);
  }
  if (drafts_.empty()) return;
  predictor_.Finish(layer, drafts_);
  const Terms terms = TermsOf(shape, layer);
  for (const int32_t e : drafts_) {
    const int64_t index = begin + e;
    values_[index] = Value(terms, forecast.chance[index], forecast.forwards[index]);
  }
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
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    FinishBelow(residency, layer, std::numeric_limits<float>::max());
  }
  return ShedByValue(residency, absl::Span<const float>(values_), slots);
}

}  // namespace tidepool::moe
