#include "kernels/cpu/attention_fold.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/kv_block.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

constexpr int kSegmentBlocks = kKvSegmentTokens / kKvBlockTokens;
static_assert(kKvSegmentTokens % kKvBlockTokens == 0 && kKvBlockTokens % kFoldUnit == 0);

const AttentionKernels& KernelsOf(const AttendOp& op) { return op.context.kernels->attention; }

// A job and one of its segments.
struct SegmentFold {
  const AttendOp& op;
  const FoldJob& job;
  int64_t segment;
  const FoldScratch& scratch;
  const Folds& part;

  float* Scores(int i) const { return scratch.scores + i * kKvSegmentTokens; }
  float* Sums(int i) const { return part.sums + i * op.FoldStride(); }
  // Returns which tokens vector i sees, among the `count` tokens that begin at `base`. Positions in
  // the result are relative to `base`. If begin >= end, the vector sees none.
  SlotRange Visible(int i, int base, int count) const {
    const SlotRange& slots = scratch.visible[i];
    const int64_t first = segment * kKvSegmentTokens + base;
    return {std::max<int64_t>(0, slots.begin - first), std::min<int64_t>(count, slots.end - first)};
  }
  // Returns whether any vector sees a token of block `b` of the segment.
  bool AnySees(int b) const {
    const int64_t first = segment * kKvSegmentTokens + b * kKvBlockTokens;
    return first < scratch.visible[job.count - 1].end &&
           first + kKvBlockTokens > scratch.visible[0].begin;
  }
  int32_t Block(int b) const { return job.span->blocks[segment * kSegmentBlocks + b]; }
  // Returns whether elements are converted while they are read. This is faster if only a few
  // vectors use them. Otherwise they are converted once for all vectors.
  bool ReadsStored() const {
    return job.count <= KernelsOf(op).vectors || op.layer.dtype == DType::kF32;
  }
};

// Converts the scales of one head in a block (`dim` of them) to float32. Does nothing for types
// without scales.
void LoadScales(const SegmentFold& fold, const KvHeadBlock& stored, int dim, float* scales) {
  if (stored.scales == nullptr) return;
  KernelsOf(fold.op).load(DType::kF16, reinterpret_cast<const std::byte*>(stored.scales), dim,
                          scales);
}

// A vector of four floats. GCC and Clang vectorise it on any architecture.
using Quad = float __attribute__((vector_size(16)));

// Transposes keys [dims][kKvBlockTokens] to values [kKvBlockTokens][dims].
void TransposeKeys(const float* keys, int dims, float* values) {
  int d = 0;
  for (; d + 4 <= dims; d += 4) {
    for (int t = 0; t < kKvBlockTokens; t += 4) {
      Quad rows[4];
      for (int i = 0; i < 4; ++i) {
        __builtin_memcpy(&rows[i], keys + (d + i) * kKvBlockTokens + t, sizeof(Quad));
      }
      // A transpose is made by zipping row i with row i + 2, twice.
      for (int round = 0; round < 2; ++round) {
        const Quad zipped[4] = {__builtin_shufflevector(rows[0], rows[2], 0, 4, 1, 5),
                                __builtin_shufflevector(rows[0], rows[2], 2, 6, 3, 7),
                                __builtin_shufflevector(rows[1], rows[3], 0, 4, 1, 5),
                                __builtin_shufflevector(rows[1], rows[3], 2, 6, 3, 7)};
        std::copy_n(zipped, 4, rows);
      }
      for (int i = 0; i < 4; ++i) {
        __builtin_memcpy(values + int64_t{t + i} * dims + d, &rows[i], sizeof(Quad));
      }
    }
  }
  for (; d < dims; ++d) {
    for (int t = 0; t < kKvBlockTokens; ++t) {
      values[int64_t{t} * dims + d] = keys[d * kKvBlockTokens + t];
    }
  }
}

void ScoreBlock(const SegmentFold& fold, int b) {
  const AttentionKernels& kernels = KernelsOf(fold.op);
  const int k_dim = fold.op.layer.k_dim;
  const KvHeadBlock stored = KeysOf(fold.op.layer, fold.Block(b), fold.job.kv_head);
  ScoreTile tile;
  tile.keys = {stored.dtype, stored.elements, fold.scratch.key_scales};
  tile.k_dim = k_dim;
  LoadScales(fold, stored, k_dim, fold.scratch.key_scales);
  if (!fold.ReadsStored()) {
    kernels.load_keys(tile.keys, k_dim, fold.scratch.keys);
    tile.keys = {DType::kF32, reinterpret_cast<const std::byte*>(fold.scratch.keys), nullptr};
  }
  for (int i = 0; i < fold.job.count; i += tile.vectors) {
    tile.vectors = std::min(kernels.vectors, fold.job.count - i);
    bool any = false;
    for (int r = 0; r < tile.vectors; ++r) {
      tile.queries[r] = fold.scratch.queries[i + r];
      tile.scores[r] = fold.Scores(i + r) + b * kKvBlockTokens;
      const SlotRange visible = fold.Visible(i + r, b * kKvBlockTokens, kKvBlockTokens);
      any = any || visible.begin < visible.end;
    }
    if (any) kernels.score(tile);
  }
}

// Adds the values of block b to the folds of the vectors [i, i + n). Requires: n <=
// kernels.vectors.
void FoldVectors(const SegmentFold& fold, int b, int i, int n, FoldTile* tile) {
  const AttentionKernels& kernels = KernelsOf(fold.op);
  SlotRange visible[kMaxAttendVectors];
  bool same = true;
  for (int r = 0; r < n; ++r) {
    visible[r] = fold.Visible(i + r, b * kKvBlockTokens, kKvBlockTokens);
    same = same && visible[r].begin == visible[0].begin && visible[r].end == visible[0].end;
  }
  // If vectors see different tokens, each is computed separately. A token that a vector does not
  // see must not affect the vector. It cannot be multiplied by zero, because its value may be NaN.
  const int step = same ? n : 1;
  for (int first = 0; first < n; first += step) {
    if (visible[first].begin >= visible[first].end) continue;
    tile->begin = static_cast<int>(visible[first].begin);
    tile->end = static_cast<int>(visible[first].end);
    tile->vectors = step;
    for (int r = 0; r < step; ++r) {
      tile->shares[r] = fold.Scores(i + first + r) + b * kKvBlockTokens;
      tile->sums[r] = fold.Sums(i + first + r);
    }
    kernels.fold(*tile);
  }
}

// Returns the values of block b, either in the stored type or converted to float32.
KvElements ValuesForFold(const SegmentFold& fold, int b) {
  const AttentionKernels& kernels = KernelsOf(fold.op);
  const int v_dim = fold.op.layer.v_dim;
  const KvHeadBlock stored = ValuesOf(fold.op.layer, fold.Block(b), fold.job.kv_head);
  const KvElements values = {stored.dtype, stored.elements, fold.scratch.value_scales};
  LoadScales(fold, stored, v_dim, fold.scratch.value_scales);
  // If v_dim is not a multiple of the lanes, the last vector would read beyond the block, where the
  // memory may end. In this case, the values are converted to a buffer.
  if (fold.ReadsStored() && v_dim % kernels.lanes == 0) return values;
  kernels.load_values(values, v_dim, fold.scratch.values);
  return {DType::kF32, reinterpret_cast<const std::byte*>(fold.scratch.values), nullptr};
}

// Like ValuesForFold, if the values are the first elements of the keys. Transposes the matrix of
// the keys.
KvElements ValuesInKeys(const SegmentFold& fold, int b) {
  const int v_dim = fold.op.layer.v_dim;
  const KvHeadBlock stored = KeysOf(fold.op.layer, fold.Block(b), fold.job.kv_head);
  LoadScales(fold, stored, v_dim, fold.scratch.key_scales);
  KernelsOf(fold.op).load_keys({stored.dtype, stored.elements, fold.scratch.key_scales}, v_dim,
                               fold.scratch.keys);
  TransposeKeys(fold.scratch.keys, v_dim, fold.scratch.values);
  return {DType::kF32, reinterpret_cast<const std::byte*>(fold.scratch.values), nullptr};
}

void FoldBlock(const SegmentFold& fold, int b) {
  const AttentionKernels& kernels = KernelsOf(fold.op);
  FoldTile tile;
  tile.values = fold.op.layer.values_in_keys ? ValuesInKeys(fold, b) : ValuesForFold(fold, b);
  tile.v_dim = fold.op.layer.v_dim;
  for (int i = 0; i < fold.job.count; i += kernels.vectors) {
    FoldVectors(fold, b, i, std::min(kernels.vectors, fold.job.count - i), &tile);
  }
}

// Replaces the scores of vector i for the tokens [begin, end) of the segment by the terms of the
// softmax.
SoftmaxState Softmax(const SegmentFold& fold, int i, int begin, int end) {
  const AttendOp& op = fold.op;
  float* scores = fold.Scores(i);
  if (op.soft_cap == 0) return KernelsOf(op).softmax(scores, begin, end, op.scale);
  op.context.kernels->soft_cap(scores + begin, end - begin, op.scale / op.soft_cap, op.soft_cap);
  return KernelsOf(op).softmax(scores, begin, end, /*scale=*/1);
}

// Adds the sink of a head to the denominator of a finished fold. Returns the factor for the sums of
// the fold.
float AddSink(float sink, SoftmaxState* state) {
  const float joint = sink > state->max ? sink : state->max;
  const float keep = Exp(state->max - joint);
  state->sum = state->sum * keep + Exp(sink - joint);
  state->max = joint;
  return keep;
}

}  // namespace

Folds AllocateFolds(const AttendOp& op, int64_t vectors, Arena* arena) {
  return {arena->Allocate<SoftmaxState>(vectors),
          arena->Allocate<float>(vectors * op.FoldStride())};
}

FoldScratch AllocateFoldScratch(const AttendOp& op, Arena* arena) {
  const KvLayer& layer = op.layer;
  const int64_t values = int64_t{layer.v_dim} * kKvBlockTokens;
  FoldScratch scratch;
  scratch.keys = arena->Allocate<float>(int64_t{layer.k_dim} * kKvBlockTokens);
  scratch.values = arena->Allocate<float>(values + kFoldUnit);
  // A vector at the end of the last row also reads these floats. Its lanes beyond v_dim are never
  // used.
  std::fill_n(scratch.values + values, kFoldUnit, 0.0f);
  scratch.key_scales = arena->Allocate<float>(layer.k_dim);
  scratch.value_scales = arena->Allocate<float>(layer.v_dim);
  scratch.scores = arena->Allocate<float>(kFoldVectors * kKvSegmentTokens);
  scratch.segment = AllocateFolds(op, kFoldVectors, arena);
  scratch.folds = AllocateFolds(op, kFoldVectors, arena);
  scratch.queries = arena->Allocate<const float*>(kFoldVectors);
  scratch.visible = arena->Allocate<SlotRange>(kFoldVectors);
  return scratch;
}

FoldJob MakeFoldJob(const AttendOp& op, const KvSpan& span, int kv_head, int64_t first) {
  FoldJob job;
  job.span = &span;
  job.kv_head = kv_head;
  job.count =
      static_cast<int>(std::min<int64_t>(kFoldVectors, span.rows * op.HeadsPerKv() - first));
  job.first = first;
  const int64_t begin = VisibleSlots(span, first / op.HeadsPerKv()).begin;
  const int64_t end = VisibleSlots(span, (first + job.count - 1) / op.HeadsPerKv()).end;
  job.begin = begin / kKvSegmentTokens;
  job.end = (end + kKvSegmentTokens - 1) / kKvSegmentTokens;
  job.blocks = (end + kKvBlockTokens - 1) / kKvBlockTokens - begin / kKvBlockTokens;
  return job;
}

void BeginJob(const AttendOp& op, const FoldJob& job, const FoldScratch& scratch) {
  const int group = op.HeadsPerKv();
  int64_t row = job.first / group;
  int member = static_cast<int>(job.first % group);
  for (int i = 0; i < job.count; ++i) {
    const int64_t head = int64_t{job.kv_head} * group + member;
    scratch.queries[i] = op.q.Row(job.span->first_row + row) + head * op.layer.k_dim;
    scratch.visible[i] = VisibleSlots(*job.span, row);
    if (++member < group) continue;
    member = 0;
    ++row;
  }
}

void ComputeSegment(const AttendOp& op, const FoldJob& job, int64_t segment,
                    const FoldScratch& scratch, const Folds& part) {
  const SegmentFold fold{op, job, segment, scratch, part};
  for (int b = 0; b < kSegmentBlocks; ++b) {
    if (fold.AnySees(b)) ScoreBlock(fold, b);
  }
  for (int i = 0; i < job.count; ++i) {
    const SlotRange visible = fold.Visible(i, 0, kKvSegmentTokens);
    part.states[i] = {0, -1};
    if (visible.begin >= visible.end) continue;
    part.states[i] =
        Softmax(fold, i, static_cast<int>(visible.begin), static_cast<int>(visible.end));
  }
  std::fill_n(part.sums, job.count * op.FoldStride(), 0.0f);
  for (int b = 0; b < kSegmentBlocks; ++b) {
    if (fold.AnySees(b)) FoldBlock(fold, b);
  }
}

void ClearFolds(const AttendOp& op, int vectors, const Folds& folds) {
  std::fill_n(folds.sums, vectors * op.FoldStride(), 0.0f);
  std::fill_n(folds.states, vectors, SoftmaxState{-std::numeric_limits<float>::infinity(), 0});
}

void MergeSegment(const AttendOp& op, int vectors, const Folds& part, const Folds& folds) {
  for (int i = 0; i < vectors; ++i) {
    if (part.states[i].sum < 0) continue;
    const int64_t at = i * op.FoldStride();
    KernelsOf(op).merge(part.states[i], part.sums + at, op.layer.v_dim, &folds.states[i],
                        folds.sums + at);
  }
}

void FinishFolds(const AttendOp& op, const FoldJob& job, const Folds& folds) {
  const int v_dim = op.layer.v_dim;
  const ActivationBuffer& out = op.out;
  for (int i = 0; i < job.count; ++i) {
    const int64_t row = job.span->first_row + (job.first + i) / op.HeadsPerKv();
    const int64_t head = int64_t{job.kv_head} * op.HeadsPerKv() + (job.first + i) % op.HeadsPerKv();
    float* sums = folds.sums + i * op.FoldStride();
    if (!op.sinks.empty()) {
      const float keep = AddSink(op.sinks[head], &folds.states[i]);
      for (int d = 0; d < v_dim; ++d) sums[d] *= keep;
    }
    float* values = out.values.Row(row) + head * v_dim;
    for (int d = 0; d < v_dim; ++d) values[d] = sums[d] / folds.states[i].sum;
    if (op.gate.data != nullptr) {  // the sums are not needed any more
      op.context.kernels->sigmoid(op.gate.Row(row) + head * v_dim, v_dim, sums);
      for (int d = 0; d < v_dim; ++d) values[d] *= sums[d];
    }
    if (!op.quantises) continue;
    const int64_t at = row * out.values.cols + head * v_dim;
    const int64_t block = at / kQuantBlock;
    op.context.kernels->quantize(
        values, v_dim / kQuantBlock,
        {out.quants + at, out.scales + block, out.sums + block, out.half_sums + 2 * block});
  }
}

}  // namespace tidepool::kernels
