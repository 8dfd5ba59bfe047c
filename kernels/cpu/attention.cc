#include "kernels/cpu/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

// Query vectors (a row's heads that share a KV head, row by row) that one task folds together: each
// segment of keys and values is converted to float32 once for all of them.
constexpr int kTaskVectors = 24;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t ElementBytes(const KvLayer& layer) { return BlockBytes(layer.dtype); }

std::byte* KvBlock(const KvLayer& layer, const KvSpan& span, int64_t block) {
  return layer.arena + span.blocks[block] * layer.block_bytes;
}

// One KV head's keys [k_dim][kKvBlockTokens] and values [kKvBlockTokens][v_dim] of a block.
std::byte* KeysOf(const KvLayer& layer, std::byte* block, int head) {
  return block + layer.k_offset +
         int64_t{head} * layer.k_dim * kKvBlockTokens * ElementBytes(layer);
}
std::byte* ValuesOf(const KvLayer& layer, std::byte* block, int head) {
  return block + layer.v_offset +
         int64_t{head} * layer.v_dim * kKvBlockTokens * ElementBytes(layer);
}

// One row's keys of one head into token `token`'s column of the block.
void StoreKeys(const CpuContext& context, const KvLayer& layer, const float* keys, int64_t token,
               std::byte* out) {
  constexpr int kPiece = 64;
  alignas(kAlignment) std::byte piece[kPiece * sizeof(float)];
  const int64_t bytes = ElementBytes(layer);
  for (int d = 0; d < layer.k_dim; d += kPiece) {
    const int n = std::min(kPiece, layer.k_dim - d);
    context.kernels->store_kv(layer.dtype, keys + d, n, piece);
    for (int i = 0; i < n; ++i) {
      std::byte* to = out + ((d + int64_t{i}) * kKvBlockTokens + token) * bytes;
      std::copy_n(piece + i * bytes, bytes, to);
    }
  }
}

// The rows of a span that fall into its block `block`.
void StoreBlock(const CpuContext& context, ConstMatrixView k, ConstMatrixView v,
                const KvLayer& layer, const KvSpan& span, int64_t block) {
  const int64_t begin = std::max(span.first_slot, block * kKvBlockTokens);
  const int64_t end = std::min(span.first_slot + span.rows, (block + 1) * kKvBlockTokens);
  std::byte* base = KvBlock(layer, span, block);
  for (int64_t slot = begin; slot < end; ++slot) {
    const int64_t row = span.first_row + slot - span.first_slot;
    const int64_t token = slot % kKvBlockTokens;
    for (int h = 0; h < layer.kv_heads; ++h) {
      StoreKeys(context, layer, k.Row(row) + int64_t{h} * layer.k_dim, token,
                KeysOf(layer, base, h));
      context.kernels->store_kv(
          layer.dtype, v.Row(row) + int64_t{h} * layer.v_dim, layer.v_dim,
          ValuesOf(layer, base, h) + token * layer.v_dim * ElementBytes(layer));
    }
  }
}

// Blocks that a span writes: [first, first + count).
struct BlockRange {
  int64_t first = 0;
  int64_t count = 0;
};
BlockRange WrittenBlocks(const KvSpan& span) {
  if (span.rows == 0) return {};
  const int64_t first = span.first_slot / kKvBlockTokens;
  return {first, (span.first_slot + span.rows - 1) / kKvBlockTokens - first + 1};
}

// One worker's memory.
struct Scratch {
  float* keys;           // [k_dim][kKvBlockTokens]
  float* values;         // [kKvBlockTokens][v_dim] and 8 more
  float* scores;         // [kAttendVectors][kKvBlockTokens]
  float* folds;          // [kTaskVectors][fold_stride]
  SoftmaxState* states;  // [kTaskVectors]
};

struct AttendOp {
  const CpuContext& context;
  ConstMatrixView q;
  int heads;
  float scale;
  const KvLayer& layer;
  MatrixView out;

  int HeadsPerKv() const { return heads / layer.kv_heads; }
  int64_t FoldStride() const { return RoundUp(layer.v_dim, 8); }
};

// Query vectors [first, first + count) of a span's rows, for one KV head.
struct AttendTask {
  const AttendOp& op;
  const KvSpan& span;
  int kv_head;
  int64_t first;
  int count;
  Scratch scratch;

  int64_t RowOf(int i) const { return (first + i) / op.HeadsPerKv(); }
  int64_t HeadOf(int i) const {
    return int64_t{kv_head} * op.HeadsPerKv() + (first + i) % op.HeadsPerKv();
  }
  const float* Query(int i) const {
    return op.q.Row(span.first_row + RowOf(i)) + HeadOf(i) * op.layer.k_dim;
  }
  // The tokens of `segment` that vector i sees, relative to its first; empty: begin >= end.
  SlotRange Visible(int i, int64_t segment) const {
    const SlotRange slots = VisibleSlots(span, RowOf(i));
    const int64_t base = segment * kKvBlockTokens;
    return {std::max<int64_t>(0, slots.begin - base),
            std::min<int64_t>(kKvBlockTokens, slots.end - base)};
  }
};

// Adds a segment's values to the folds of vectors [i, i + n), whose shares are in the scores.
void FoldVectors(const AttendTask& task, int i, int n, const SlotRange& visible,
                 const float* scores) {
  FoldTile tile;
  tile.vectors = n;
  tile.begin = static_cast<int>(visible.begin);
  tile.end = static_cast<int>(visible.end);
  tile.values = task.scratch.values;
  tile.v_dim = task.op.layer.v_dim;
  for (int r = 0; r < n; ++r) {
    const SoftmaxState& state = task.scratch.states[i + r];
    tile.shares[r] = scores + r * kKvBlockTokens;
    tile.folds[r] = task.scratch.folds + (i + r) * task.op.FoldStride();
    tile.keep[r] = state.keep;
    tile.take[r] = state.take;
  }
  task.op.context.kernels->fold(tile);
}

// One segment, whose keys and values are in the scratch, for vectors [i, i + n), n <=
// kAttendVectors.
void AddSegment(const AttendTask& task, int64_t segment, int i, int n) {
  const KernelTable& kernels = *task.op.context.kernels;
  const float* queries[kAttendVectors];
  float* scores[kAttendVectors];
  SlotRange visible[kAttendVectors];
  bool any = false;
  bool same = true;
  for (int r = 0; r < n; ++r) {
    queries[r] = task.Query(i + r);
    scores[r] = task.scratch.scores + r * kKvBlockTokens;
    visible[r] = task.Visible(i + r, segment);
    any = any || visible[r].begin < visible[r].end;
    same = same && visible[r].begin == visible[0].begin && visible[r].end == visible[0].end;
  }
  if (!any) return;
  kernels.score(queries, n, task.scratch.keys, task.op.layer.k_dim, scores);
  for (int r = 0; r < n; ++r) {
    if (visible[r].begin >= visible[r].end) continue;
    kernels.segment_softmax(scores[r], static_cast<int>(visible[r].begin),
                            static_cast<int>(visible[r].end), task.op.scale,
                            &task.scratch.states[i + r]);
    // Vectors that see different tokens fold apart: a token that one of them does not see must not
    // reach it even as zero times its value, which may be anything.
    if (!same) FoldVectors(task, i + r, 1, visible[r], scores[r]);
  }
  if (same) FoldVectors(task, i, n, visible[0], scores[0]);
}

void RunTask(const AttendTask& task) {
  const AttendOp& op = task.op;
  const KvLayer& layer = op.layer;
  const KernelTable& kernels = *op.context.kernels;
  std::fill_n(task.scratch.folds, task.count * op.FoldStride(), 0.0f);
  const float lowest = -std::numeric_limits<float>::infinity();
  std::fill_n(task.scratch.states, task.count, SoftmaxState{lowest, 0, 0, 0});

  const int64_t begin = VisibleSlots(task.span, task.RowOf(0)).begin;
  const int64_t end = VisibleSlots(task.span, task.RowOf(task.count - 1)).end;
  for (int64_t segment = begin / kKvBlockTokens; segment * kKvBlockTokens < end; ++segment) {
    std::byte* block = KvBlock(layer, task.span, segment);
    kernels.load_kv(layer.dtype, KeysOf(layer, block, task.kv_head),
                    int64_t{layer.k_dim} * kKvBlockTokens, task.scratch.keys);
    kernels.load_kv(layer.dtype, ValuesOf(layer, block, task.kv_head),
                    int64_t{layer.v_dim} * kKvBlockTokens, task.scratch.values);
    for (int i = 0; i < task.count; i += kAttendVectors) {
      AddSegment(task, segment, i, std::min(kAttendVectors, task.count - i));
    }
  }

  for (int i = 0; i < task.count; ++i) {
    const float* fold = task.scratch.folds + i * op.FoldStride();
    float* out = op.out.Row(task.span.first_row + task.RowOf(i)) + task.HeadOf(i) * layer.v_dim;
    const float sum = task.scratch.states[i].sum;
    for (int d = 0; d < layer.v_dim; ++d) out[d] = fold[d] / sum;
  }
}

Scratch AllocateScratch(const KvLayer& layer, int64_t fold_stride, Arena* arena) {
  const int64_t values = int64_t{layer.v_dim} * kKvBlockTokens;
  Scratch scratch;
  scratch.keys = arena->Allocate<float>(int64_t{layer.k_dim} * kKvBlockTokens);
  scratch.values = arena->Allocate<float>(values + 8);
  // A vector that straddles the last row reads these; its lanes past v_dim are never used.
  std::fill_n(scratch.values + values, 8, 0.0f);
  scratch.scores = arena->Allocate<float>(kAttendVectors * kKvBlockTokens);
  scratch.folds = arena->Allocate<float>(kTaskVectors * fold_stride);
  scratch.states = arena->Allocate<SoftmaxState>(kTaskVectors);
  return scratch;
}

}  // namespace

void StoreKvRows(const CpuContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans) {
  int64_t tasks = 0;
  for (const KvSpan& span : spans) tasks += WrittenBlocks(span).count;
  context.pool->ParallelFor(tasks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t at = task;
      const KvSpan* span = spans.data();
      for (; at >= WrittenBlocks(*span).count; ++span) at -= WrittenBlocks(*span).count;
      StoreBlock(context, k, v, layer, *span, WrittenBlocks(*span).first + at);
    }
  });
}

void AttendRows(const CpuContext& context, ConstMatrixView q, int heads, float scale,
                const KvLayer& layer, absl::Span<const KvSpan> spans, MatrixView out,
                Arena* arena) {
  const AttendOp op{context, q, heads, scale, layer, out};
  const size_t mark = arena->used();
  int64_t* ends = arena->Allocate<int64_t>(spans.size());  // tasks of spans up to and with each
  int64_t tasks = 0;
  int64_t covered = 0;
  for (size_t s = 0; s < spans.size(); ++s) {
    const int64_t vectors = spans[s].rows * op.HeadsPerKv();
    tasks += (vectors + kTaskVectors - 1) / kTaskVectors * layer.kv_heads;
    ends[s] = tasks;
    covered += spans[s].rows;
  }
  if (covered < q.rows) {
    for (int64_t i = 0; i < out.rows; ++i) std::fill_n(out.Row(i), out.cols, 0.0f);
  }
  const int threads = context.pool->threads();
  Scratch* scratch = arena->Allocate<Scratch>(threads);
  for (int t = 0; t < threads; ++t) {
    scratch[t] = AllocateScratch(layer, op.FoldStride(), arena);
  }
  context.pool->ParallelFor(tasks, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t task = begin; task < end; ++task) {
      const size_t s = std::upper_bound(ends, ends + spans.size(), task) - ends;
      const int64_t at = task - (s == 0 ? 0 : ends[s - 1]);
      const int64_t first = at / layer.kv_heads * kTaskVectors;
      const int64_t vectors = spans[s].rows * op.HeadsPerKv();
      RunTask({op, spans[s], static_cast<int>(at % layer.kv_heads), first,
               static_cast<int>(std::min<int64_t>(kTaskVectors, vectors - first)),
               scratch[worker]});
    }
  });
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels
