#include "kernels/cpu/gate.h"

#include <algorithm>
#include <limits>

#include "kernels/math.h"

namespace tidepool::kernels {
namespace {

// The rank of an expert that is already chosen, or whose group was not kept. It is below the ranks
// of all scores.
constexpr int32_t kGone = std::numeric_limits<int32_t>::min();

// Maps scores to integers with the same order. -0 and 0 have the same rank. NaN has the lowest
// rank, which is above kGone.
int32_t RankOf(float score) {
  if (score != score) return kGone + 1;
  // adding zero turns -0 into 0
  const int32_t bits = static_cast<int32_t>(FloatBits(score + 0.0f));
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

// Returns the index of the largest rank in [begin, end). If several are equal, returns the first.
int BestOf(const std::vector<int32_t>& ranks, int begin, int end) {
  int best = begin;
  for (int i = begin + 1; i < end; ++i) {
    if (ranks[i] > ranks[best]) best = i;
  }
  return best;
}

}  // namespace

RowGate::RowGate(const KernelTable& kernels, const GateSpec& spec)
    : kernels_(kernels),
      spec_(spec),
      scores_(spec.experts),
      selection_(spec.experts),
      ranks_(spec.experts),
      group_ranks_(spec.groups) {}

void RowGate::Choose(const float* logits, int32_t* ids, float* weights) {
  Score(logits);
  if (spec_.groups_kept < spec_.groups) KeepBestGroups();
  ChooseIds(ids);
  Weigh(ids, weights);
}

void RowGate::Score(const float* logits) {
  switch (spec_.score) {
    case GateScore::kSoftmax:
      kernels_.softmax(logits, spec_.experts, scores_.data());
      break;
    case GateScore::kSigmoid:
      kernels_.sigmoid(logits, spec_.experts, scores_.data());
      break;
    case GateScore::kSoftmaxOfChosen:
      std::copy_n(logits, spec_.experts, scores_.data());
      break;
  }
  selection_ = scores_;
  if (!spec_.selection_bias.empty()) {
    kernels_.add(spec_.selection_bias.data(), spec_.experts, selection_.data());
  }
  for (int e = 0; e < spec_.experts; ++e) ranks_[e] = RankOf(selection_[e]);
}

void RowGate::KeepBestGroups() {
  const int size = spec_.experts / spec_.groups;
  const auto begin_of = [size](int group) { return group * size; };
  for (int g = 0; g < spec_.groups; ++g) {
    const int begin = begin_of(g);
    const int best = BestOf(ranks_, begin, begin + size);
    float score = selection_[best];
    if (spec_.group_score == GroupScore::kSumOfTwo && size > 1) {
      const int32_t rank = ranks_[best];
      ranks_[best] = kGone;
      score += selection_[BestOf(ranks_, begin, begin + size)];
      ranks_[best] = rank;
    }
    group_ranks_[g] = RankOf(score);
  }
  // Removes the groups with the lowest scores. If groups are equal, those with the highest ids are
  // removed.
  for (int left = spec_.groups; left > spec_.groups_kept; --left) {
    int worst = -1;
    for (int g = 0; g < spec_.groups; ++g) {
      const bool gone = ranks_[begin_of(g)] == kGone;
      if (!gone && (worst < 0 || group_ranks_[g] <= group_ranks_[worst])) worst = g;
    }
    std::fill_n(ranks_.begin() + begin_of(worst), size, kGone);
  }
}

void RowGate::ChooseIds(int32_t* ids) {
  for (int s = 0; s < spec_.top_k; ++s) {
    ids[s] = BestOf(ranks_, 0, spec_.experts);
    ranks_[ids[s]] = kGone;
  }
}

void RowGate::Weigh(const int32_t* ids, float* weights) {
  for (int s = 0; s < spec_.top_k; ++s) weights[s] = scores_[ids[s]];
  if (spec_.score == GateScore::kSoftmaxOfChosen) {
    std::copy_n(weights, spec_.top_k, scores_.data());
    kernels_.softmax(scores_.data(), spec_.top_k, weights);
  }
  if (spec_.normalize) {
    float sum = 0;
    for (int s = 0; s < spec_.top_k; ++s) sum += weights[s];
    sum += spec_.normalize_epsilon;
    for (int s = 0; s < spec_.top_k; ++s) weights[s] /= sum;
  }
  if (spec_.scale == 1) return;
  for (int s = 0; s < spec_.top_k; ++s) weights[s] *= spec_.scale;
}

}  // namespace tidepool::kernels
