#include "moe/policy/next_use_predictor.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace tidepool::moe {
namespace {

// Forwards ahead at which the model is asked about an expert that was just used; it answers for
// those up to the next one. Uses that come back in a rhythm want every forward of it.
constexpr int kHorizons[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                             13, 14, 15, 16, 18, 20, 22, 24, 28, 32, 40, 48};
constexpr int kHorizonCount = std::size(kHorizons);
// And about one that was not: each forward is asked about again when it has come so near, with what
// the model has learned since.
constexpr int kHorizonsAgain[] = {1, 2, 3, 5, 8, 12, 16, 24, 32, 48};
// Past those whose wait would cost this many uses nothing is asked. One use is what a slot can
// bring; the price may fall before the expert is asked about again.
constexpr float kDearest = 2;

bool IsAskedAgain(int horizon) {
  return std::binary_search(std::begin(kHorizonsAgain), std::end(kHorizonsAgain), horizon);
}

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

NextUsePredictor::Layer::Layer(int experts, int top_k)
    : history(experts, top_k),
      features(ExpertStride(experts)),
      curves(ExpertStride(experts)),
      is_followed(experts, false) {}

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
      walk_(stride_),
      ahead_(stride_),
      chances_(stride_) {
  const float prior = static_cast<float>(shape.top_k) / static_cast<float>(shape.experts);
  for (int layer = 0; layer < shape.layers; ++layer) layers_.emplace_back(experts_, top_k_);
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
  SetKept(index, residency, &layer);
  LookAhead(index, slot_price, &layer);
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
}

void NextUsePredictor::Predict(const LayerFeatures& features, std::vector<float>* chances) const {
  chances->resize(stride_);
  model_.Predict(features.samples(), chances->data());
}

void NextUsePredictor::SetKept(int index, const Residency& residency, Layer* layer) {
  fresh_.clear();
  unused_.clear();
  for (int32_t e = 0; e < experts_; ++e) {
    const bool used = use_.share[e] > 0;
    const bool kept = used || residency.IsResident({index, e});
    if (kept) (used || !layer->is_followed[e] ? fresh_ : unused_).push_back(e);
    layer->is_followed[e] = kept;
  }
}

void NextUsePredictor::LookAhead(int index, float slot_price, Layer* layer) {
  layer->curves.Advance();
  layer->curves.Set(0, 1, layer->order, layer->chances);
  Extend(fresh_, /*all=*/true, slot_price, layer);
  Extend(unused_, /*all=*/false, slot_price, layer);
  walk_.Go(layer->curves, experts_, slot_price);
  const int64_t begin = int64_t{index} * experts_;
  for (const std::vector<int32_t>* experts : {&fresh_, &unused_}) {
    for (const int32_t e : *experts) {
      outlook_.chance[begin + e] = walk_.chance()[e];
      outlook_.forwards[begin + e] = walk_.forwards()[e];
    }
  }
}

// Renews the curves of these experts behind the next forward: all of them, or what is asked again.
void NextUsePredictor::Extend(const std::vector<int32_t>& experts, bool all, float slot_price,
                              Layer* layer) {
  if (experts.empty()) return;
  layer->history.Sort(experts);
  const auto is_past_all = [&](int h) {
    return h == kHorizonCount || (h > 1 && kHorizons[h] * slot_price > kDearest);
  };
  for (int h = 1; !is_past_all(h); ++h) {
    if (!all && !IsAskedAgain(kHorizons[h])) continue;
    layer->history.Compute(horizons_[h], tables_, &ahead_);
    Predict(ahead_, &chances_);
    const bool to_the_end = h + 1 == kHorizonCount || (all && is_past_all(h + 1));
    const int end = to_the_end ? ChanceCurves::kForwards : kHorizons[h + 1];
    layer->curves.Set(kHorizons[h], end, layer->history.order(), chances_);
  }
}

}  // namespace tidepool::moe
