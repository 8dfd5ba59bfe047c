// Two steps of attention: the scores of a segment, and their softmax.
#ifndef TIDEPOOL_KERNELS_CUDA_ATTENTION_SCORES_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ATTENTION_SCORES_CU_H_

#include <cstdint>

#include "kernels/cuda/attention_block.cu.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_store_layout.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {

template <DType kType, int R, int T>
class AttendScores {
 public:
  TIDEPOOL_DEVICE explicit AttendScores(const AttendBlock<R, T>& block)
      : block_(block), args_(block.args), task_(block.task) {}

  // Writes the scores of the segment to shared memory.
  TIDEPOOL_DEVICE void Score(int segment) const {
    constexpr int kGroups = kKvSegmentTokens / T;
    const int token = ThreadIndex() % kGroups * T;
    const int v = ThreadIndex() / kGroups * R;
    const int first = segment * kKvSegmentTokens + token / kKvBlockTokens * kKvBlockTokens;
    if (v >= task_.count) return;
    const bool seen =
        first < block_.ends[task_.count - 1] && first + kKvBlockTokens > block_.begins[0];
    if (!seen) return;
    float sums[R][T] = {};
    ScoreTokens(args_.keys.At(block_.BlockOf(segment, token), task_.kv_head), v,
                token % kKvBlockTokens, sums);
    TIDEPOOL_UNROLL
    for (int r = 0; r < R; ++r) {
      TIDEPOOL_UNROLL
      for (int t = 0; t < T; ++t) block_.scores[(v + r) * kScoreStride + token + t] = sums[r][t];
    }
  }

  // Replaces the scores of each vector by the terms of the softmax, which are 0 for tokens that it
  // does not see.
  TIDEPOOL_DEVICE void Softmax(int segment) const {
    constexpr int kPerLane = kKvSegmentTokens / kWarpLanes;
    for (int v = WarpIndex(); v < block_.Padded(); v += kAttendWarps) {
      const TokenRange visible = block_.Visible(segment, v);
      const int at = v * kScoreStride + LaneIndex();
      float x[kPerLane];
      float max = -__builtin_inff();
      TIDEPOOL_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const int token = LaneIndex() + i * kWarpLanes;
        const bool sees = token >= visible.begin && token < visible.end;
        x[i] = sees ? Scaled(block_.scores[at + i * kWarpLanes]) : -__builtin_inff();
        max = x[i] > max ? x[i] : max;
      }
      TIDEPOOL_UNROLL
      for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
        const float other = ShuffleXor(max, mask);
        max = other > max ? other : max;
      }
      TIDEPOOL_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const int token = LaneIndex() + i * kWarpLanes;
        const bool sees = token >= visible.begin && token < visible.end;
        block_.scores[at + i * kWarpLanes] = sees ? Exp(x[i] - max) : 0.0f;
      }
      if (LaneIndex() == 0) block_.keeps[v] = max;  // SumShares replaces it
    }
    WarpBarrier();
    for (int v = WarpIndex(); v < block_.Padded(); v += kAttendWarps * kWarpLanes / kSumLanes) {
      SumShares(segment, v + LaneIndex() / kSumLanes * kAttendWarps);
    }
  }

 private:
  static constexpr int kChunk = 16 / T;  // number of dimensions that are loaded together

  TIDEPOOL_DEVICE void LoadKeys(const KvHead& head, int d, int token, const float (&scales)[T],
                                float (&out)[T]) const {
    LoadElements<kType>(head, int64_t{d} * kKvBlockTokens + token, out);
    if constexpr (kType == DType::kQ8_0) {
      TIDEPOOL_UNROLL
      for (int t = 0; t < T; ++t) out[t] = out[t] * scales[t];
    }
  }

  // Adds the products of the vectors from v on with the keys of T tokens of a block.
  TIDEPOOL_DEVICE void ScoreTokens(const KvHead& head, int v, int token,
                                   float (&sums)[R][T]) const {
    const int k_dim = args_.keys.dim;
    const int stride = block_.query_stride;
    float scales[T];
    int d = 0;
    for (; d + kChunk <= k_dim; d += kChunk) {
      float keys[kChunk][T];
      if constexpr (kType == DType::kQ8_0) {
        LoadScales(head, d / kQuantBlock * kKvBlockTokens + token, scales);
      }
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; ++i) LoadKeys(head, d + i, token, scales, keys[i]);
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; i += 4) {
        TIDEPOOL_UNROLL
        for (int r = 0; r < R; ++r) {
          const F32x4 q = block_.wide_queries[((v + r) * stride + d + i) / 4];
          TIDEPOOL_UNROLL
          for (int t = 0; t < T; ++t) {
            float sum = __builtin_fmaf(q.x, keys[i][t], sums[r][t]);
            sum = __builtin_fmaf(q.y, keys[i + 1][t], sum);
            sum = __builtin_fmaf(q.z, keys[i + 2][t], sum);
            sums[r][t] = __builtin_fmaf(q.w, keys[i + 3][t], sum);
          }
        }
      }
    }
    for (; d < k_dim; ++d) {
      float keys[T];
      if constexpr (kType == DType::kQ8_0) {
        LoadScales(head, d / kQuantBlock * kKvBlockTokens + token, scales);
      }
      LoadKeys(head, d, token, scales, keys);
      TIDEPOOL_UNROLL
      for (int r = 0; r < R; ++r) {
        const float q = block_.queries[(v + r) * stride + d];
        TIDEPOOL_UNROLL
        for (int t = 0; t < T; ++t) sums[r][t] = __builtin_fmaf(q, keys[t], sums[r][t]);
      }
    }
  }

  TIDEPOOL_DEVICE float Scaled(float score) const {
    if (args_.soft_cap == 0) return score * args_.scale;
    return SoftCap(score, args_.scale / args_.soft_cap, args_.soft_cap);
  }

  // Adds up the terms of vector v, and stores its softmax. 8 lanes of the warp compute a vector.
  TIDEPOOL_DEVICE void SumShares(int segment, int v) const {
    const bool exists = v < block_.Padded();
    const int at = (exists ? v : 0) * kScoreStride + LaneIndex() % kSumLanes;
    float sum = 0;
    if (exists) {
      TIDEPOOL_UNROLL
      for (int i = 0; i < kKvSegmentTokens; i += kSumLanes) sum += block_.scores[at + i];
    }
    sum = SumOfLanes(sum);
    if (v >= task_.count || LaneIndex() % kSumLanes != 0) return;
    const SoftmaxState state = {block_.keeps[v], sum};
    const TokenRange visible = block_.Visible(segment, v);
    const bool sees = visible.begin < visible.end;
    if (block_.IsSplit()) {
      if (sees) args_.part_states[block_.PartOf(segment, v)] = state;
      return;
    }
    MergeFactors factors = {1, -1};  // the vector sees nothing of the segment
    if (sees) {
      SoftmaxState all = {block_.maxima[v], block_.sums[v]};
      factors = MergeState(state, &all);
      block_.maxima[v] = all.max;
      block_.sums[v] = all.sum;
    }
    block_.keeps[v] = factors.keep;
    block_.takes[v] = factors.take;
  }

  const AttendBlock<R, T>& block_;
  const AttendArgs& args_;
  const AttendTask& task_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ATTENTION_SCORES_CU_H_
