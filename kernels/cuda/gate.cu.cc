// KernelBackend::Gate. One warp chooses the experts of a row.
#include <cstdint>
#include <limits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {
namespace {

// The rank of an expert that is already chosen, or whose group was not kept. It is below the ranks
// of all scores.
constexpr int32_t kGone = std::numeric_limits<int32_t>::min();

// Maps scores to integers with the same order. -0 and 0 have the same rank. NaN has the lowest
// rank, which is above kGone.
constexpr int32_t RankOf(float score) {
  if (score != score) return kGone + 1;
  // adding zero turns -0 into 0
  const auto bits = static_cast<int32_t>(FloatBits(score + 0.0f));
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

// GateSpec, for kernels.
struct GateArgs {
  const float* logits;
  int64_t stride;
  int experts;
  int top_k;
  bool normalize;
  GateScore score;
  const float* selection_bias;  // null: none
  int groups;
  int groups_kept;
  GroupScore group_score;
  float scale;
  float normalize_epsilon;
  int32_t* ids;
  float* weights;
};

// Large because the steps share the shared memory.
class WarpGate {
 public:
  TIDEPOOL_DEVICE WarpGate(const GateArgs& args, int64_t row)
      : args_(args),
        logits_(args.logits + row * args.stride),
        ids_(args.ids + row * args.top_k),
        weights_(args.weights + row * args.top_k),
        scores_(SharedArray<float>(0, args.experts)),
        selection_(SharedArray<float>(args.experts * 4, args.experts)),
        ranks_(SharedArray<int32_t>(args.experts * 8, args.experts)),
        chosen_(SharedArray<float>(args.experts * 12, args.top_k)),
        group_ranks_(SharedArray<int32_t>((args.experts * 3 + args.top_k) * 4, args.groups)) {}

  static int SharedBytes(const GateSpec& spec) {
    return (spec.experts * 3 + spec.top_k + spec.groups) * 4;
  }

  TIDEPOOL_DEVICE void Choose() const {
    Score();
    WarpBarrier();
    if (args_.groups_kept < args_.groups) {
      KeepBestGroups();
      WarpBarrier();
    }
    for (int s = 0; s < args_.top_k; ++s) {
      const int best = BestOf(0, args_.experts);
      WarpBarrier();
      if (LaneIndex() == 0) {
        ranks_[best] = kGone;
        ids_[s] = best;
        chosen_[s] = scores_[best];
      }
      WarpBarrier();
    }
    Weigh();
  }

 private:
  // shares = softmax(x), for n elements. `shares` may be x.
  TIDEPOOL_DEVICE static void Softmax(const Shared<float>& x, int n, const Shared<float>& shares) {
    float max = -__builtin_inff();
    for (int i = LaneIndex(); i < n; i += kWarpLanes) {
      const float v = x[i];
      max = v > max ? v : max;
    }
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
      const float other = ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    for (int i = LaneIndex(); i < n; i += kWarpLanes) shares[i] = Exp(x[i] - max);
    WarpBarrier();
    float sum = 0;
    if (LaneIndex() < kSumLanes) {
      for (int i = LaneIndex(); i < n; i += kSumLanes) sum += shares[i];
    }
    sum = Shuffle(SumOfLanes(sum), 0);
    WarpBarrier();
    for (int i = LaneIndex(); i < n; i += kWarpLanes) shares[i] = shares[i] / sum;
    WarpBarrier();
  }

  TIDEPOOL_DEVICE void Score() const {
    for (int e = LaneIndex(); e < args_.experts; e += kWarpLanes) {
      scores_[e] = args_.score == GateScore::kSigmoid ? Sigmoid(logits_[e]) : logits_[e];
    }
    WarpBarrier();
    if (args_.score == GateScore::kSoftmax) Softmax(scores_, args_.experts, scores_);
    for (int e = LaneIndex(); e < args_.experts; e += kWarpLanes) {
      float selection = scores_[e];
      if (args_.selection_bias != nullptr) selection = selection + args_.selection_bias[e];
      selection_[e] = selection;
      ranks_[e] = RankOf(selection);
    }
  }

  // Returns the index of the largest rank in [begin, end). If several are equal, returns the first.
  // All lanes of the warp must call this, and get the same result.
  TIDEPOOL_DEVICE int BestOf(int begin, int end) const {
    int best = end;
    int32_t rank = kGone;
    for (int e = begin + LaneIndex(); e < end; e += kWarpLanes) {
      const int32_t other = ranks_[e];
      if (best < end && other <= rank) continue;
      best = e;
      rank = other;
    }
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
      const int other = ShuffleXor(best, mask);
      const int32_t other_rank = ShuffleXor(rank, mask);
      const bool wins = other_rank > rank || (other_rank == rank && other < best);
      best = wins ? other : best;
      rank = wins ? other_rank : rank;
    }
    return best;
  }

  // Removes the experts of all groups except the args_.groups_kept best ones.
  TIDEPOOL_DEVICE void KeepBestGroups() const {
    const int size = args_.experts / args_.groups;
    for (int g = 0; g < args_.groups; ++g) {
      const int begin = g * size;
      const int best = BestOf(begin, begin + size);
      float score = selection_[best];
      if (args_.group_score == GroupScore::kSumOfTwo && size > 1) {
        const int32_t rank = ranks_[best];
        WarpBarrier();
        if (LaneIndex() == 0) ranks_[best] = kGone;
        WarpBarrier();
        score += selection_[BestOf(begin, begin + size)];
        WarpBarrier();
        if (LaneIndex() == 0) ranks_[best] = rank;
        WarpBarrier();
      }
      if (LaneIndex() == 0) group_ranks_[g] = RankOf(score);
    }
    WarpBarrier();
    // If groups are equal, those with the highest ids are removed.
    for (int left = args_.groups; left > args_.groups_kept; --left) {
      int worst = -1;
      for (int g = 0; g < args_.groups; ++g) {
        const bool gone = ranks_[g * size] == kGone;
        if (!gone && (worst < 0 || group_ranks_[g] <= group_ranks_[worst])) worst = g;
      }
      WarpBarrier();
      for (int e = LaneIndex(); e < size; e += kWarpLanes) ranks_[worst * size + e] = kGone;
      WarpBarrier();
    }
  }

  // Computes the weights of the chosen experts from their scores.
  TIDEPOOL_DEVICE void Weigh() const {
    if (args_.score == GateScore::kSoftmaxOfChosen) Softmax(chosen_, args_.top_k, chosen_);
    float sum = 1;
    if (args_.normalize) {
      sum = 0;
      for (int s = 0; s < args_.top_k; ++s) sum += chosen_[s];
      sum += args_.normalize_epsilon;
    }
    for (int s = LaneIndex(); s < args_.top_k; s += kWarpLanes) {
      float weight = chosen_[s];
      if (args_.normalize) weight = weight / sum;
      weights_[s] = args_.scale == 1 ? weight : weight * args_.scale;
    }
  }

  const GateArgs& args_;
  const float* logits_;
  int32_t* ids_;
  float* weights_;
  const Shared<float> scores_;     // [experts]
  const Shared<float> selection_;  // [experts]
  const Shared<int32_t> ranks_;    // [experts]
  const Shared<float> chosen_;     // [top_k]: the scores of the chosen experts
  const Shared<int32_t> group_ranks_;
};

TIDEPOOL_KERNEL_OF(kWarpLanes, 16) GateKernel(GateArgs args) { WarpGate(args, BlockX()).Choose(); }

}  // namespace

void GateRows(const CudaContext& context, ConstMatrixView logits, const GateSpec& spec,
              int32_t* ids, float* weights) {
  if (logits.rows == 0) return;
  GateArgs args = {.logits = logits.data, .stride = logits.stride, .experts = spec.experts};
  args.top_k = spec.top_k;
  args.normalize = spec.normalize;
  args.score = spec.score;
  args.selection_bias = spec.selection_bias.empty() ? nullptr : spec.selection_bias.data();
  args.groups = spec.groups;
  args.groups_kept = spec.groups_kept;
  args.group_score = spec.group_score;
  args.scale = spec.scale;
  args.normalize_epsilon = spec.normalize_epsilon;
  args.ids = ids;
  args.weights = weights;
  Launch(context.stream, GateKernel, {static_cast<int>(logits.rows)}, kWarpLanes,
         WarpGate::SharedBytes(spec), args);
}

}  // namespace tidepool::kernels::cuda
