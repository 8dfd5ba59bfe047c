#include "moe/policy/reuse_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tidepool::moe {
namespace {

// The maximum number of forward passes without a use for which a slot is held.
constexpr int kForwards = 33;

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
      layers_(shape.layers,
              {UsageHistory(shape.experts, shape.top_k), {}, UsageFeatures(shape.experts), {}}),
      tables_(shape.experts, shape.top_k),
      model_(InitialWeights(), kAgeGroups, std::exp2(-1 / (kHalfLife * shape.layers))),
      is_used_(shape.experts),
      outcomes_(shape.experts),
      projection_(shape.experts),
      features_(shape.experts) {
  std::iota(all_.begin(), all_.end(), 0);
  forecast_.chance.assign(shape.all_experts() + kLanes, tables_.prior);
  forecast_.forwards.assign(shape.all_experts() + kLanes, 0);
}

void ReusePredictor::Update(const LayerNeeds& needs, const Residency& residency, float slot_price) {
  if (needs.routing.tokens == 0) return;
  const int index = needs.routing.layer;
  Layer& layer = layers_[index];
  SetExcessDemand(layer, needs.experts.size());
  is_used_.assign(experts_, false);
  for (const ExpertNeed& need : needs.experts) is_used_[need.expert] = true;
  Learn(needs, &layer);
  kept_.clear();
  for (int32_t e = 0; e < experts_; ++e) {
    if (is_used_[e] || residency.IsResident({index, e})) kept_.push_back(e);
  }
  UpdateForecast(index, slot_price, layer);
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
      const bool is_used = is_used_[layer->order[i]];
      outcomes_[i] = is_used ? 1.0f : 0.0f;
      tables_.gaps.Add(layer->features.gap_cases[i], 1, is_used ? 1 : 0);
    }
    model_.Learn(layer->features.samples(), outcomes_.data(), layer->chances.data());
  }
  layer->history.Add(needs, &tables_);
  projection_.Start(layer->history, all_);
  projection_.Compute(tables_, &layer->features);
  layer->order = projection_.order();
  Predict(layer->features, &layer->chances);
}

void ReusePredictor::UpdateForecast(int index, float slot_price, const Layer& layer) {
  projection_.Start(layer.history, kept_);
  hold_.Start(static_cast<int>(kept_.size()), slot_price);
  bool may_pay = true;
  for (int forward = 0; forward < kForwards && may_pay; ++forward) {
    if (forward > 0) projection_.AddIdleForward();
    projection_.Compute(tables_, &features_);
    Predict(features_, &hazards_);
    may_pay = hold_.Add(hazards_);
  }
  const int64_t begin = int64_t{index} * experts_;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const int64_t expert = begin + projection_.order()[i];
    forecast_.chance[expert] = hold_.chance()[i];
    forecast_.forwards[expert] = hold_.forwards()[i];
  }
}

void ReusePredictor::Predict(const UsageFeatures& features, std::vector<float>* chances) const {
  const Samples samples = features.samples();
  chances->resize((samples.count() + kLanes - 1) / kLanes * kLanes);
  model_.Predict(samples, chances->data());
}

}  // namespace tidepool::moe
