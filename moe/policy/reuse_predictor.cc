#include "moe/policy/reuse_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tidepool::moe {
namespace {

// The maximum number of forward passes without a use for which a slot is held.
constexpr int kForwards = 33;
// The next forward pass is not counted in ReuseForecast::forwards.
constexpr float kMaxForwards = kForwards - 1;

// After this number of forwards of all layers, the weight of a sample is halved.
constexpr double kHalfLife = 25;

// The first prediction is the mean of the rates.
std::vector<double> InitialWeights() {
  std::vector<double> weights(kFeatures, 0);
  std::fill_n(weights.begin(), kUseRates, 1.0 / kUseRates);
  return weights;
}

}  // namespace

ReusePredictor::ReusePredictor(const PoolShape& shape)
    : experts_(shape.experts),
      top_k_(shape.top_k),
      all_(shape.experts),
      tables_(shape.experts, shape.top_k),
      model_(InitialWeights(), kAgeGroups, std::exp2(-1 / (kHalfLife * shape.layers))),
      layers_(shape.layers, {.history = UsageHistory(shape.experts, shape.top_k),
                             .features = UsageFeatures(shape.experts),
                             .weights = model_.weights(),
                             .slot_price = 0,
                             .limits = {0, tables_.prior, 0}}),
      is_used_(shape.experts),
      outcomes_(shape.experts),
      projection_(shape.experts),
      features_(shape.experts) {
  std::iota(all_.begin(), all_.end(), 0);
  forecast_.chance.assign(shape.all_experts(), tables_.prior);
  forecast_.forwards.assign(shape.all_experts(), 0);
  forecast_.is_draft.assign(shape.all_experts(), 0);
}

void ReusePredictor::Update(const LayerNeeds& needs, const Residency& residency, float slot_price) {
  if (needs.routing.tokens == 0) return;
  const int index = needs.routing.layer;
  // This Update makes no forecast of an expert that has lost its slot, so its last forecast stays
  // and must not be a draft. A policy finishes the forecasts of its victims, but an expert can also
  // lose its slot because of a failed read.
  lost_.clear();
  for (int32_t e = 0; e < experts_; ++e) {
    const ExpertRef ref{index, e};
    if (forecast_.is_draft[residency.IndexOf(ref)] && !residency.IsResident(ref)) {
      lost_.push_back(e);
    }
  }
  Finish(index, lost_);
  Layer& layer = layers_[index];
  SetExcessDemand(layer, needs.experts.size());
  is_used_.assign(experts_, 0);
  for (const ExpertNeed& need : needs.experts) is_used_[need.expert] = 1;
  Learn(needs, &layer);
  Draft(index, residency, slot_price);
}

void ReusePredictor::Skip(int layer) {
  layers_[layer].limits = {.slot_price = 0, .least_chance = 0, .max_forwards = kMaxForwards};
}

// At least top_k experts are expected, because a single token needs top_k.
void ReusePredictor::SetExcessDemand(const Layer& layer, size_t needed) {
  const float expected =
      std::max(static_cast<float>(top_k_),
               std::accumulate(layer.chances.begin(), layer.chances.end(), 0.0f));
  const float others = static_cast<float>(experts_) - expected;
  const float excess = static_cast<float>(needed) - expected;
  excess_demand_ = excess > 0 && others > 0 ? std::min(excess / others, 1.0f) : 0.0f;
}

// Learns from all experts of the layer, and predicts the layer's next forward.
void ReusePredictor::Learn(const LayerNeeds& needs, Layer* layer) {
  if (!layer->chances.empty()) {
    for (int i = 0; i < experts_; ++i) {
      const int is_used = is_used_[layer->order[i]];
      outcomes_[i] = static_cast<float>(is_used);
      tables_.gaps.Add(layer->features.gap_cases[i], 1, is_used);
    }
    model_.Learn(layer->features.samples(), outcomes_.data(), layer->chances.data());
  }
  layer->history.Add(needs, &tables_);
  layer->rates.Set(tables_);
  layer->weights = model_.weights();
  projection_.Start(layer->history, all_);
  projection_.Compute(layer->rates, &layer->features);
  layer->order = projection_.order();
  layer->chances.resize(experts_);
  layer->weights.Predict(layer->features.samples(), layer->chances.data());
}

void ReusePredictor::Draft(int index, const Residency& residency, float slot_price) {
  Layer& layer = layers_[index];
  float least_chance = 1;
  for (int i = 0; i < experts_; ++i) {
    const ExpertRef ref{index, layer.order[i]};
    if (is_used_[ref.expert] == 0 && !residency.IsResident(ref)) continue;
    const int64_t at = residency.IndexOf(ref);
    forecast_.chance[at] = layer.chances[i];
    forecast_.forwards[at] = 0;
    forecast_.is_draft[at] = 1;
    least_chance = std::min(least_chance, layer.chances[i]);
  }
  // A slot is given up before it costs more than a certain use is worth.
  const float paid = slot_price > 1 / kMaxForwards ? 1 / slot_price : kMaxForwards;
  layer.slot_price = slot_price;
  layer.limits = {slot_price, least_chance, paid};
}

void ReusePredictor::Finish(int index, absl::Span<const int32_t> experts) {
  if (experts.empty()) return;
  const Layer& layer = layers_[index];
  const int64_t begin = int64_t{index} * experts_;
  projection_.Start(layer.history, experts);
  hold_.Start(static_cast<int>(experts.size()), layer.slot_price);
  hazards_.resize((experts.size() + kLanes - 1) / kLanes * kLanes);
  for (size_t i = 0; i < experts.size(); ++i) {
    hazards_[i] = forecast_.chance[begin + projection_.order()[i]];
  }
  for (int forward = 1; hold_.Add(hazards_) && forward < kForwards; ++forward) {
    projection_.AddIdleForward();
    projection_.Compute(layer.rates, &features_);
    layer.weights.Predict(features_.samples(), hazards_.data());
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const int64_t at = begin + projection_.order()[i];
    forecast_.chance[at] = hold_.chance()[i];
    forecast_.forwards[at] = hold_.forwards()[i];
    forecast_.is_draft[at] = 0;
  }
}

}  // namespace tidepool::moe
