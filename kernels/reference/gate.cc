#include "kernels/reference/gate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/truth.h"

namespace tidepool::kernels {
namespace {

std::vector<float> SoftmaxOf(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  std::vector<float> shares = logits;
  for (float& share : shares) share = static_cast<float>(std::exp(share - max) / total);
  return shares;
}

std::vector<float> ScoresOf(const std::vector<float>& logits, GateScore score) {
  if (score == GateScore::kSoftmax) return SoftmaxOf(logits);
  std::vector<float> scores = logits;
  if (score == GateScore::kSigmoid) {
    for (float& value : scores) value = static_cast<float>(SigmoidTruth(value));
  }
  return scores;
}

// Returns whether a ranks above b. A NaN is below every number, so this is a strict weak order.
bool Above(float a, float b) { return !std::isnan(a) && (std::isnan(b) || a > b); }

// Returns the ids 0, 1, ... in descending order of `values`. Ids with equal values are in ascending
// order.
std::vector<int32_t> Descending(const std::vector<float>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return Above(values[a], values[b]); });
  return order;
}

// Returns for each expert whether its group is kept.
std::vector<bool> KeptGroups(const std::vector<float>& selection, const GateSpec& spec) {
  const size_t size = selection.size() / spec.groups;
  std::vector<float> scores;
  for (int g = 0; g < spec.groups; ++g) {
    std::vector<float> group(selection.begin() + g * size, selection.begin() + (g + 1) * size);
    std::stable_sort(group.begin(), group.end(), Above);
    const bool adds = spec.group_score == GroupScore::kSumOfTwo && size > 1;
    scores.push_back(adds ? group[0] + group[1] : group[0]);
  }
  const std::vector<int32_t> order = Descending(scores);
  std::vector<bool> kept(spec.groups, false);
  for (int i = 0; i < spec.groups_kept; ++i) kept[order[i]] = true;
  return kept;
}

}  // namespace

void ReferenceGate(const float* logits, const GateSpec& spec, int32_t* ids, float* weights) {
  const std::vector<float> scores =
      ScoresOf(std::vector<float>(logits, logits + spec.experts), spec.score);
  std::vector<float> selection = scores;
  for (size_t e = 0; e < spec.selection_bias.size(); ++e) selection[e] += spec.selection_bias[e];
  const std::vector<bool> kept = KeptGroups(selection, spec);
  std::vector<float> chosen;
  for (const int32_t e : Descending(selection)) {
    if (!kept[e / (spec.experts / spec.groups)]) continue;
    if (static_cast<int>(chosen.size()) == spec.top_k) break;
    ids[chosen.size()] = e;
    chosen.push_back(scores[e]);
  }
  if (spec.score == GateScore::kSoftmaxOfChosen) chosen = SoftmaxOf(chosen);
  const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0) + spec.normalize_epsilon;
  for (int s = 0; s < spec.top_k; ++s) {
    weights[s] = static_cast<float>(chosen[s] / (spec.normalize ? sum : 1.0) * spec.scale);
  }
}

}  // namespace tidepool::kernels
