#include "moe/policy/next_use_predictor.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// Forwards ahead at which the model is asked; it answers for those up to the next one.
constexpr int kHorizons[] = {0, 1, 2, 4, 8, 16, 32};
constexpr int kLastHorizon = 64;
// Nearer forwards are horizons of their own.
constexpr int kFirstDue = 2;
// Samples weigh half as much after so many forwards: histories ripen, and what was right of young
// ones is wrong of older. Chosen on the design half of tests/moe/replay/trace_kinds.h, whose mean
// moves by less than 0.001 between 8 and 25, and falls by 0.002 to 0.003 without this.
constexpr int64_t kMemory = 12;
// Begins as the mean of all the rates.
std::vector<double> FirstWeights() {
  std::vector<double> weights(kFeatures, 0);
  for (int rate = 0; rate < kUseRates; ++rate) weights[rate] = 1.0 / kUseRates;
  return weights;
}

}  // namespace

NextUsePredictor::NextUsePredictor(const PoolShape& shape)
    : experts_(shape.experts),
      top_k_(shape.top_k),
      stride_(ExpertStride(shape.experts)),
      all_(shape.experts),
      tables_(static_cast<float>(shape.top_k) / static_cast<float>(shape.experts)),
      horizons_(std::begin(kHorizons), std::end(kHorizons)),
      model_(FirstWeights(), kAgeGroups),
      use_(shape.experts),
      outcomes_(shape.experts),
      next_(shape.experts),
      walk_(stride_),
      ahead_(stride_),
      chances_(stride_) {
  const float prior = static_cast<float>(shape.top_k) / static_cast<float>(shape.experts);
  for (int layer = 0; layer < shape.layers; ++layer) {
    layers_.push_back({UsageHistory(experts_, shape.top_k), LayerFeatures(stride_), {}, {}});
  }
  std::iota(all_.begin(), all_.end(), 0);
  outlook_.chance.assign(shape.all_experts(), prior);
  outlook_.forwards.assign(shape.all_experts(), 0);
}

void NextUsePredictor::Update(const LayerNeeds& needs, const Residency& residency,
                              float slot_price) {
  if (needs.routing.tokens == 0) return;
  const int index = needs.routing.layer;
  Layer& layer = layers_[index];
  use_.Set(needs);
  SetSurplus(layer, needs.experts.size());
  if (!layer.chances.empty()) Learn(&layer);
  layer.history.Add(use_);
  layer.history.AddRows(needs.routing, &tables_);
  PredictNext(&layer);
  kept_.clear();
  for (const int32_t expert : all_) {
    if (use_.share[expert] > 0 || residency.IsResident({index, expert})) kept_.push_back(expert);
  }
  layer.history.Sort(kept_);
  LookAhead(index, layer, slot_price);
}

// Every forward needs as many as one token; where a layer has not run, no more is expected.
void NextUsePredictor::SetSurplus(const Layer& layer, size_t needed) {
  auto expected = static_cast<float>(top_k_);
  if (!layer.chances.empty()) {
    const auto begin = layer.chances.begin();
    expected = std::max(expected, std::accumulate(begin, begin + experts_, 0.0f));
  }
  const float others = static_cast<float>(experts_) - expected;
  const float more = static_cast<float>(needed) - expected;
  surplus_ = more > 0 && others > 0 ? std::min(more / others, 1.0f) : 0.0f;
}

void NextUsePredictor::Learn(Layer* layer) {
  for (int i = 0; i < experts_; ++i) outcomes_[i] = use_.share[layer->order[i]] > 0 ? 1.0f : 0.0f;
  model_.Learn(layer->features.samples(), outcomes_.data(), layer->chances.data());
  tables_.Learn(layer->features.cells, stride_, outcomes_);
  if (++updates_ % (kMemory * static_cast<int64_t>(layers_.size())) == 0) model_.Fade();
}

// Of all experts: this is what is learned from.
void NextUsePredictor::PredictNext(Layer* layer) {
  layer->history.Sort(all_);
  layer->order = layer->history.order();
  layer->history.Compute(horizons_[0], tables_, &layer->features);
  Predict(layer->features, &layer->chances);
  for (int i = 0; i < experts_; ++i) next_[layer->order[i]] = layer->chances[i];
}

void NextUsePredictor::Predict(const LayerFeatures& features, std::vector<float>* chances) const {
  chances->resize(stride_);
  model_.Predict(features.samples(), chances->data());
}

// What the model says of experts for when they are due; of the others nothing will be asked.
void NextUsePredictor::PredictDue(const UsageHistory& history) {
  due_chances_.assign(stride_, 0.0f);
  history.FindDue(kFirstDue, kLastHorizon, &due_positions_);
  history.ComputeDue(due_positions_, tables_, &ahead_);
  Predict(ahead_, &chances_);
  for (size_t i = 0; i < due_positions_.size(); ++i) due_chances_[due_positions_[i]] = chances_[i];
}

void NextUsePredictor::LookAhead(int index, const Layer& layer, float slot_price) {
  const std::vector<int32_t>& order = layer.history.order();
  const auto count = static_cast<int>(order.size());
  PredictDue(layer.history);
  walk_.Begin(count, slot_price, layer.history.due(), due_chances_);
  for (size_t h = 0; h < std::size(kHorizons); ++h) {
    if (h == 0) {
      for (int i = 0; i < count; ++i) chances_[i] = next_[order[i]];
    } else {
      layer.history.Compute(horizons_[h], tables_, &ahead_);
      Predict(ahead_, &chances_);
    }
    const int end = h + 1 < std::size(kHorizons) ? kHorizons[h + 1] : kLastHorizon;
    walk_.Advance(kHorizons[h], end, chances_);
  }
  float* chance_of = outlook_.chance.data() + int64_t{index} * experts_;
  float* forwards_of = outlook_.forwards.data() + int64_t{index} * experts_;
  for (int i = 0; i < count; ++i) {
    chance_of[order[i]] = walk_.chance()[i];
    forwards_of[order[i]] = walk_.forwards()[i];
  }
}

}  // namespace tidepool::moe
