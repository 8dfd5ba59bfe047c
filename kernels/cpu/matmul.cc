#include "kernels/cpu/matmul.h"

#include <algorithm>

#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// Number of rows that one task multiplies with one group of panels. The rows must fit into the
// core's cache. With more rows, each panel would be read less often.
constexpr int64_t kRowChunk = 96;

// A range [begin, end).
struct Range {
  int64_t begin;
  int64_t end;
};

// Calls visit(first, rows) for tiles that cover `rows`.
template <typename Visit>
void ForRowTiles(const Range& range, Visit visit) {
  for (int64_t first = range.begin; first < range.end; first += kTileRows) {
    visit(first, static_cast<int>(std::min<int64_t>(kTileRows, range.end - first)));
  }
}

// Prefetches the memory to which rows [0, rows) of a tile will be stored, which are `cols` floats
// from `column` on. So the stores do not have to wait.
void PrefetchRows(MatrixView out, int64_t row, int rows, int64_t column, int64_t cols) {
  constexpr int64_t kLineFloats = kAlignment / sizeof(float);
  for (int64_t r = row; r < row + rows; ++r) {
    const float* const first = out.Row(r) + column;
    for (int64_t c = 0; c < cols; c += kLineFloats) __builtin_prefetch(first + c, /*rw=*/1);
  }
}

// Stores one row of a tile, after adding the bias to it. May change the tile.
void StoreRow(const CpuContext& context, const MatMulTarget& target, const Range& columns,
              float* tile, float* out) {
  const int64_t cols = columns.end - columns.begin;
  if (!target.bias.empty()) context.kernels->add(target.bias.data() + columns.begin, cols, tile);
  if (target.store == Store::kAdd) {
    context.kernels->add(tile, cols, out);
  } else {
    std::copy_n(tile, cols, out);
  }
}

// Multiplies rows of x with one group of a target's panels.
void MultiplyGroupOfTarget(const CpuContext& context, const Activation& x,
                           const MatMulTarget& target, int64_t group, const Range& range) {
  const int64_t column = group * kTileCols;
  const int64_t cols = GroupCols(target.weight, group);
  alignas(kAlignment) float tile[kTileRows * kTileCols];
  ForRowTiles(range, [&](int64_t first, int rows) {
    PrefetchRows(target.out, first, rows, column, cols);
    ComputeTile(context, {target.weight, group, {x}, first, rows}, tile);
    for (int r = 0; r < rows; ++r) {
      StoreRow(context, target, {column, column + cols}, tile + r * kTileCols,
               target.out.Row(first + r) + column);
    }
  });
}

// A task: computes the inner part of an FFN for the rows of `source`, and writes the results to the
// rows of `out` from `offset` on.
struct GluJob {
  const RowSource& source;
  const FfnWeights& ffn;
  const ActivationBuffer& out;
  int64_t offset = 0;
};

// Computes a tile and adds `bias` to its rows.
void ComputeBiasedTile(const CpuContext& context, const TileJob& job, absl::Span<const float> bias,
                       float* tile) {
  ComputeTile(context, job, tile);
  if (bias.empty()) return;
  const float* part = bias.data() + job.group * kTileCols;
  const int64_t cols = GroupCols(job.weight, job.group);
  for (int r = 0; r < job.rows; ++r) context.kernels->add(part, cols, tile + r * kTileCols);
}

// Computes one group of panels and converts the result to int8. The columns of a group are exactly
// one int8 block.
void GluGroup(const CpuContext& context, const GluJob& job, int64_t group, const Range& range) {
  const ActivationBuffer& out = job.out;
  const FfnWeights& ffn = job.ffn;
  const GluFunction glu = context.kernels->glu[static_cast<int>(ffn.glu.form)];
  const int64_t column = group * kTileCols;
  const int64_t cols = GroupCols(ffn.gate, group);
  const int64_t blocks = out.values.cols / kQuantBlock;
  alignas(kAlignment) float gates[kTileRows * kTileCols];
  alignas(kAlignment) float ups[kTileRows * kTileCols];
  ForRowTiles(range, [&](int64_t first, int rows) {
    PrefetchRows(out.values, job.offset + first, rows, column, cols);
    ComputeBiasedTile(context, {ffn.gate, group, job.source, first, rows}, ffn.gate_bias, gates);
    ComputeBiasedTile(context, {ffn.up, group, job.source, first, rows}, ffn.up_bias, ups);
    for (int r = 0; r < rows; ++r) {
      const int64_t row = job.offset + first + r;
      float* values = out.values.Row(row) + column;
      glu(gates + r * kTileCols, ups + r * kTileCols, cols, ffn.glu, values);
      if (out.quants == nullptr) continue;
      const int64_t block = row * blocks + group;
      context.kernels->quantize(values, 1,
                                {out.quants + row * out.values.cols + column, out.scales + block,
                                 out.sums + block, out.half_sums + 2 * block});
    }
  });
}

}  // namespace

static_assert(kTileCols == kQuantBlock, "a group of panels fills one int8 block of its output");

int64_t GroupCount(int64_t rows) { return (rows + kTileCols - 1) / kTileCols; }

int64_t GroupCols(const PackedMatrix& weight, int64_t group) {
  return std::min<int64_t>(kTileCols, weight.rows - group * kTileCols);
}

void ComputeTile(const CpuContext& context, const TileJob& job, float* out) {
  const PackedMatrix& weight = job.weight;
  Tile tile;
  tile.dtype = weight.dtype;
  tile.panel_bytes = PanelBytes(weight.dtype, weight.cols);
  tile.panels = weight.data + job.group * kTilePanels * tile.panel_bytes;
  tile.panel_count = static_cast<int>(PanelCount(GroupCols(weight, job.group)));
  tile.cols = weight.cols;
  tile.rows = job.rows;
  tile.out = out;
  const Activation& x = job.source.x;
  const int64_t column = job.source.column;
  const bool int8 = context.precision == Precision::kFast && IsQuantised(weight.dtype);
  for (int r = 0; r < job.rows; ++r) {
    const int64_t row = job.source.At(job.first + r);
    tile.values[r] = x.values.Row(row) + column;
    if (!int8) continue;
    const int64_t at = row * x.values.cols + column;
    tile.quants[r] = x.quants + at;
    tile.scales[r] = x.scales + at / kQuantBlock;
    tile.sums[r] = x.sums + at / kQuantBlock;
    tile.half_sums[r] = x.half_sums + at / kHalfBlock;
  }
  (int8 ? context.kernels->multiply_int8 : context.kernels->multiply_float)(tile);
}

int64_t TaskGrain(const CpuContext& context, int64_t tasks, int64_t macs) {
  // one thread needs one or two microseconds for this number of multiply-adds
  constexpr int64_t kMinShared = 1 << 15;
  constexpr int64_t kRangesPerThread = 8;
  if (macs < kMinShared) return std::max<int64_t>(1, tasks);
  return std::clamp<int64_t>(tasks / (kRangesPerThread * context.pool->threads()), 1, 16);
}

void QuantizeRows(const CpuContext& context, ConstMatrixView values, const ActivationBuffer& rows) {
  if (rows.quants == nullptr) return;
  const int64_t blocks = values.cols / kQuantBlock;
  context.pool->ParallelFor(values.rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      context.kernels->quantize(values.Row(i), blocks,
                                {rows.quants + i * values.cols, rows.scales + i * blocks,
                                 rows.sums + i * blocks, rows.half_sums + 2 * i * blocks});
    }
  });
}

void MultiplyTargets(const CpuContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets) {
  int64_t groups = 0;
  int64_t outputs = 0;
  for (const MatMulTarget& target : targets) {
    groups += GroupCount(target.weight.rows);
    outputs += target.weight.rows;
  }
  const int64_t macs = x.values.rows * x.values.cols * outputs;
  const int64_t chunks = (x.values.rows + kRowChunk - 1) / kRowChunk;
  const int64_t tasks = chunks * groups;
  const int64_t grain = TaskGrain(context, tasks, macs);
  context.pool->ParallelFor(tasks, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / groups * kRowChunk;
      int64_t group = task % groups;
      const MatMulTarget* target = targets.data();
      while (group >= GroupCount(target->weight.rows)) {
        group -= GroupCount(target->weight.rows);
        ++target;
      }
      MultiplyGroupOfTarget(context, x, *target, group,
                            {row, std::min(x.values.rows, row + kRowChunk)});
    }
  });
}

void MultiplyHeads(const CpuContext& context, const Activation& x,
                   absl::Span<const PackedMatrix> weights, MatrixView out) {
  const int64_t rows = weights[0].rows;
  const int64_t cols = weights[0].cols;
  const int64_t groups = GroupCount(rows);
  const int64_t tasks = groups * static_cast<int64_t>(weights.size());
  const int64_t macs = x.values.rows * out.cols * cols;
  context.pool->ParallelFor(
      tasks, TaskGrain(context, tasks, macs), [&](int64_t begin, int64_t end, int) {
        alignas(kAlignment) float tile[kTileRows * kTileCols];
        for (int64_t task = begin; task < end; ++task) {
          const int64_t head = task / groups;
          const int64_t group = task % groups;
          const RowSource source = {.x = x, .column = head * cols};
          const int64_t column = head * rows + group * kTileCols;
          const int64_t count = GroupCols(weights[head], group);
          ForRowTiles({0, x.values.rows}, [&](int64_t first, int tile_rows) {
            ComputeTile(context, {weights[head], group, source, first, tile_rows}, tile);
            for (int r = 0; r < tile_rows; ++r) {
              std::copy_n(tile + r * kTileCols, count, out.Row(first + r) + column);
            }
          });
        }
      });
}

void MultiplyGlu(const CpuContext& context, const Activation& x, const FfnWeights& ffn,
                 const ActivationBuffer& out) {
  const int64_t groups = GroupCount(ffn.gate.rows);
  const int64_t chunks = (x.values.rows + kRowChunk - 1) / kRowChunk;
  const int64_t tasks = chunks * groups;
  const int64_t macs = 2 * x.values.rows * ffn.gate.rows * ffn.gate.cols;
  const int64_t grain = TaskGrain(context, tasks, macs);
  context.pool->ParallelFor(tasks, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / groups * kRowChunk;
      GluGroup(context, {{x}, ffn, out}, task % groups,
               {row, std::min(x.values.rows, row + kRowChunk)});
    }
  });
}

void MultiplyGroups(const CpuContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena) {
  if (groups.empty()) return;
  const size_t mark = arena->used();
  const int64_t width = groups[0].weights->gate.rows;
  const GroupScratch scratch = AllocateGroupScratch(groups, context.precision, arena);
  const ActivationBuffer& hidden = scratch.hidden;
  int64_t* const offsets = scratch.offsets;
  int64_t total = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    offsets[g] = total;
    total += static_cast<int64_t>(groups[g].rows.size());
  }

  const int64_t inner = GroupCount(width);
  const int64_t inner_tasks = inner * groups.size();
  const int64_t down_macs = total * width * out.cols;
  context.pool->ParallelFor(
      inner_tasks, TaskGrain(context, inner_tasks, 2 * total * width * x.values.cols),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t task = begin; task < end; ++task) {
          const ExpertGroup& group = groups[task / inner];
          const int64_t rows = static_cast<int64_t>(group.rows.size());
          GluGroup(context, {{x, group.rows.data()}, *group.weights, hidden, offsets[task / inner]},
                   task % inner, {0, rows});
        }
      });

  const Activation hidden_view = hidden.View();
  const int64_t outer = GroupCount(out.cols);
  const int64_t outer_tasks = outer * groups.size();
  context.pool->ParallelFor(
      outer_tasks, TaskGrain(context, outer_tasks, down_macs),
      [&](int64_t begin, int64_t end, int) {
        alignas(kAlignment) float tile[kTileRows * kTileCols];
        for (int64_t task = begin; task < end; ++task) {
          const ExpertGroup& group = groups[task / outer];
          const PackedMatrix& down = group.weights->down;
          const int64_t column = task % outer * kTileCols;
          const int64_t cols = GroupCols(down, task % outer);
          ForRowTiles({0, static_cast<int64_t>(group.rows.size())}, [&](int64_t first, int rows) {
            ComputeBiasedTile(
                context, {down, task % outer, {hidden_view}, offsets[task / outer] + first, rows},
                group.weights->down_bias, tile);
            for (int r = 0; r < rows; ++r) {
              std::copy_n(tile + r * kTileCols, cols, out.Row(group.out_rows[first + r]) + column);
            }
          });
        }
      });
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels
