// What the steps of attention share. One block of threads computes a task (attention_plan.cu.h).
//
// Each segment has three steps (attention_scores.cu.h, attention_fold.cu.h). First, a thread
// computes the scores of R query vectors and T tokens. Each score is one chain over the dimensions.
// Then a warp computes the softmax of a vector. Then a thread computes the sums of R vectors and T
// columns of the values. Each sum is one chain over the tokens. So each loaded element of a key or
// value is used for R vectors. Each loaded element of a query is used for T tokens, and each loaded
// share for T columns.
#ifndef TIDEPOOL_KERNELS_CUDA_ATTENTION_BLOCK_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ATTENTION_BLOCK_CU_H_

#include <cstdint>

#include "kernels/cuda/attention_plan.cu.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_store_layout.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {

inline constexpr int kAttendThreads = 128;
inline constexpr int kAttendWarps = kAttendThreads / kWarpLanes;
static_assert(kAttendThreads == kKvSegmentTokens);

// Floats between the scores of two vectors. It is not a multiple of 32, so that lanes which read
// scores of different vectors use different banks.
inline constexpr int kScoreStride = kKvSegmentTokens + 4;

// The softmax of a query vector over some tokens: the maximum score, and the sum of exp(score -
// max).
struct SoftmaxState {
  float max;
  float sum;
};

// What all kernels of one call of Attend use. Large because a kernel gets all arguments by value.
struct AttendArgs {
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  const float* gate;  // null: no gate
  int64_t gate_stride;
  const float* sinks;  // null: none
  KvPart keys;
  KvPart values;  // with values_in_keys, this is `keys` with the dim of values
  bool values_in_keys;
  bool aligned_values;  // whether the values of a token begin at multiples of 4 elements
  int heads;
  int group;  // number of heads that share a KV head
  float scale;
  float soft_cap;  // 0: none
  const AttendSpan* spans;
  const int32_t* tables;
  // The parts of divided spans, [segments of a round][split_vectors].
  SoftmaxState* part_states;
  float* part_sums;  // each [part_stride]
  int64_t part_stride;
  int64_t split_vectors;
  int64_t round_segments;
  int64_t round;
};

// [begin, end)
struct TokenRange {
  int begin;
  int end;
};

// Returns the slots that a row of a span sees (VisibleSlots in ops.h).
TIDEPOOL_DEVICE TokenRange SlotsOf(const AttendSpan& span, int64_t row) {
  const int64_t slot = span.first_slot + row;
  const int64_t end = span.causal ? slot + 1 : span.first_slot + span.rows;
  const int64_t begin = span.window == 0 || slot < span.window ? 0 : slot - span.window + 1;
  return {static_cast<int>(begin), static_cast<int>(end)};
}

TIDEPOOL_DEVICE int Clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

// To merge a segment into the earlier ones, multiply the sums of the segment by `take`, and the
// sums of the earlier segments by `keep`. MergeState returns these factors. It also merges the
// softmax of the segment into `state`, the softmax of the earlier segments.
struct MergeFactors {
  float keep;
  float take;
};
TIDEPOOL_DEVICE MergeFactors MergeState(const SoftmaxState& segment, SoftmaxState* state) {
  const float joint = segment.max > state->max ? segment.max : state->max;
  const MergeFactors factors = {Exp(state->max - joint), Exp(segment.max - joint)};
  state->sum = __builtin_fmaf(segment.sum, factors.take, state->sum * factors.keep);
  state->max = joint;
  return factors;
}

// What remains to be done with the sums of a query vector after all segments are merged.
struct FinishFactors {
  bool has_sink;
  float keep;
  float sum;
};
TIDEPOOL_DEVICE FinishFactors FinishOf(const AttendArgs& args, int head, SoftmaxState state) {
  if (args.sinks == nullptr) return {false, 1, state.sum};
  const float sink = args.sinks[head];
  const float joint = sink > state.max ? sink : state.max;
  const float keep = Exp(state.max - joint);
  return {true, keep, state.sum * keep + Exp(sink - joint)};
}
TIDEPOOL_DEVICE float FinishSum(const AttendArgs& args, const FinishFactors& factors, float sum,
                                int64_t row, int64_t col) {
  if (factors.has_sink) sum = sum * factors.keep;
  const float value = sum / factors.sum;
  if (args.gate == nullptr) return value;
  return value * Sigmoid(args.gate[row * args.gate_stride + col]);
}

// Bytes of shared memory that a task of `vectors` query vectors needs.
constexpr int QueryStride(int k_dim) { return (k_dim + 3) / 4 * 4; }
constexpr int AttendSharedBytes(int vectors, int k_dim) {
  return vectors * (QueryStride(k_dim) + kScoreStride + 6) * static_cast<int>(sizeof(float));
}

// A task, and its shared memory. R and T are as above; a task has up to R * T vectors.
template <int R, int T>
struct AttendBlock {
  static constexpr int kVectors = R * T;

  TIDEPOOL_DEVICE AttendBlock(const AttendArgs& call_args, const AttendTask& block_task)
      : args(call_args),
        task(block_task),
        span(call_args.spans[block_task.span]),
        query_stride(QueryStride(call_args.keys.dim)),
        queries(SharedArray<float>(0, kVectors * query_stride)),
        wide_queries(SharedArray<F32x4>(0, kVectors * query_stride / 4)),
        scores(SharedArray<float>(ByteOf(0), kVectors * kScoreStride)),
        wide_scores(SharedArray<F32x4>(ByteOf(0), kVectors * kScoreStride / 4)),
        begins(SharedArray<int>(ByteOf(kScoreStride), kVectors)),
        ends(SharedArray<int>(ByteOf(kScoreStride + 1), kVectors)),
        maxima(SharedArray<float>(ByteOf(kScoreStride + 2), kVectors)),
        sums(SharedArray<float>(ByteOf(kScoreStride + 3), kVectors)),
        keeps(SharedArray<float>(ByteOf(kScoreStride + 4), kVectors)),
        takes(SharedArray<float>(ByteOf(kScoreStride + 5), kVectors)) {}

  // Returns the first byte after the queries and `floats` floats for each vector.
  TIDEPOOL_DEVICE int ByteOf(int floats) const { return kVectors * (query_stride + floats) * 4; }
  TIDEPOOL_DEVICE bool IsSplit() const { return span.vectors >= 0; }
  // Returns the number of vectors of the task, rounded up to a multiple of R.
  TIDEPOOL_DEVICE int Padded() const { return (task.count + R - 1) / R * R; }
  // The row and the head of vector v. The row is counted from the span's first one.
  TIDEPOOL_DEVICE int RowOf(int v) const { return (task.first + v) / args.group; }
  TIDEPOOL_DEVICE int HeadOf(int v) const {
    return task.kv_head * args.group + (task.first + v) % args.group;
  }
  // Returns the number of the part that vector v has for a segment.
  TIDEPOOL_DEVICE int64_t PartOf(int segment, int v) const {
    const int64_t index = segment - span.segment - args.round * args.round_segments;
    return index * args.split_vectors + span.vectors + int64_t{RowOf(v)} * args.heads + HeadOf(v);
  }
  // Returns the arena's block that has a token of a segment.
  TIDEPOOL_DEVICE int32_t BlockOf(int segment, int token) const {
    return args.tables[span.table + (segment * kKvSegmentTokens + token) / kKvBlockTokens];
  }
  // Returns the tokens of the segment that vector v sees. If begin >= end, the vector sees none.
  TIDEPOOL_DEVICE TokenRange Visible(int segment, int v) const {
    const int base = segment * kKvSegmentTokens;
    return {Clamp(begins[v] - base, 0, kKvSegmentTokens),
            Clamp(ends[v] - base, 0, kKvSegmentTokens)};
  }

  // Loads the queries, and what each vector sees.
  TIDEPOOL_DEVICE void Begin() const {
    const int k_dim = args.keys.dim;
    for (int v = 0; v < Padded(); ++v) {
      const bool exists = v < task.count;
      const float* q = args.q;
      if (exists) q += (span.first_row + RowOf(v)) * args.q_stride + int64_t{HeadOf(v)} * k_dim;
      for (int d = ThreadIndex(); d < k_dim; d += kAttendThreads) {
        queries[v * query_stride + d] = exists ? q[d] : 0;
      }
    }
    const int v = ThreadIndex();
    if (v >= Padded()) return;
    const TokenRange slots = v < task.count ? SlotsOf(span, RowOf(v)) : TokenRange{0, 0};
    begins[v] = slots.begin;
    ends[v] = slots.end;
    maxima[v] = -__builtin_inff();
    sums[v] = 0;
  }

  const AttendArgs& args;
  const AttendTask task;
  const AttendSpan span;
  const int query_stride;
  const Shared<float> queries;  // [kVectors][query_stride]
  const Shared<F32x4> wide_queries;
  const Shared<float> scores;  // [kVectors][kScoreStride]
  const Shared<F32x4> wide_scores;
  const Shared<int> begins;  // the visible slots
  const Shared<int> ends;
  const Shared<float> maxima;  // the softmax of the segments so far, if the span is not divided
  const Shared<float> sums;
  const Shared<float> keeps;  // the factors that merge the current segment
  const Shared<float> takes;  // below 0 if the vector sees nothing of the segment
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ATTENTION_BLOCK_CU_H_
