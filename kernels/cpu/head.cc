// KernelBackend::MatMulHead. If only the argmax of a row is needed, the outputs of the row are not
// written to memory. Each thread keeps only the argmax of the outputs that it has computed.
#include <algorithm>
#include <limits>

#include "kernels/cpu/matmul.h"

namespace tidepool::kernels {
namespace {

using Quad = float __attribute__((vector_size(16)));

// Adds the outputs [column, column + count) of a row to its argmax. Most tiles have no new maximum,
// which is checked for four outputs at a time.
void AddTileToArgMax(const float* values, int64_t column, int64_t count, ArgMax* best) {
  const float bound = best->index < 0 ? -std::numeric_limits<float>::infinity() : best->value;
  int64_t i = 0;
  if (best->index >= 0) {
    auto news = Quad{} != Quad{};
    for (; i + 4 <= count; i += 4) {
      Quad v;
      __builtin_memcpy(&v, values + i, sizeof(v));
      // True for larger outputs, +infinity and NaN. An equal output does not replace the argmax,
      // because its index is higher.
      news |= ~(v <= bound);
    }
    bool any = (news[0] | news[1] | news[2] | news[3]) != 0;
    for (; i < count; ++i) any = any || !(values[i] <= bound);
    if (!any) return;
  }
  for (i = 0; i < count; ++i) AddToArgMax(static_cast<int32_t>(column + i), values[i], best);
}

// A part of the product: some rows, and one group of panels.
struct HeadJob {
  const Activation& x;
  const HeadTarget& target;
  int64_t group;
  int64_t first;
  int rows;
};

// Computes the outputs of a job, [rows][kTileCols]: the sum of all terms, with bias, scale and
// soft-cap.
void SumTerms(const CpuContext& context, const HeadJob& job, float* tile) {
  const HeadTarget& target = job.target;
  const int64_t group = job.group;
  const int rows = job.rows;
  int32_t ids[kTileRows];
  for (int i = 0; i < rows * target.terms; ++i) {
    ids[i] = static_cast<int32_t>(job.first + i % rows + i / rows * target.rows());
  }
  ComputeTile(context, {target.weight, group, {job.x, ids}, 0, rows * target.terms}, tile);
  for (int term = 1; term < target.terms; ++term) {
    context.kernels->add(tile + term * rows * kTileCols, rows * kTileCols, tile);
  }
  if (!target.bias.empty()) {
    const float* bias = target.bias.data() + group * kTileCols;
    const int64_t cols = GroupCols(target.weight, group);
    for (int r = 0; r < rows; ++r) context.kernels->add(bias, cols, tile + r * kTileCols);
  }
  const int64_t outputs = int64_t{rows} * kTileCols;
  if (target.scale != 1) context.kernels->scale(tile, target.scale, outputs);
  if (target.soft_cap != 0) {
    context.kernels->soft_cap(tile, outputs, 1 / target.soft_cap, target.soft_cap);
  }
}

void MultiplyHeadGroup(const CpuContext& context, const Activation& x, const HeadTarget& target,
                       int64_t group, ArgMax* best) {
  const int64_t column = group * kTileCols;
  const int64_t cols = GroupCols(target.weight, group);
  const int step = kTileRows / target.terms;
  alignas(kAlignment) float tile[kTileRows * kTileCols];
  for (int64_t first = 0; first < target.rows(); first += step) {
    const int rows = static_cast<int>(std::min<int64_t>(step, target.rows() - first));
    SumTerms(context, {x, target, group, first, rows}, tile);
    for (int r = 0; r < rows; ++r) {
      const float* values = tile + r * kTileCols;
      const int64_t row = first + r;
      if (row < target.out.rows) {
        std::copy_n(values, cols, target.out.Row(row) + column);
      } else {
        AddTileToArgMax(values, column, std::min(cols, target.argmax_vocab - column),
                        best + row - target.out.rows);
      }
    }
  }
}

}  // namespace

void MultiplyHead(const CpuContext& context, const Activation& x, const HeadTarget& target,
                  Arena* arena) {
  CHECK_LE(target.terms, kTileRows);
  const size_t mark = arena->used();
  const int threads = context.pool->threads();
  const int64_t rows = static_cast<int64_t>(target.argmax.size());
  ArgMax* best = AllocateHeadScratch(target, threads, arena);  // [threads][rows]
  std::fill_n(best, threads * rows, ArgMax());
  // Outputs that are not needed are not computed.
  const int64_t groups = GroupCount(
      target.out.rows > 0 ? target.weight.rows : std::max<int64_t>(1, target.argmax_vocab));
  const int64_t macs = x.values.rows * x.values.cols * groups * kTileCols;
  context.pool->ParallelFor(groups, TaskGrain(context, groups, macs),
                            [&](int64_t begin, int64_t end, int worker) {
                              for (int64_t group = begin; group < end; ++group) {
                                MultiplyHeadGroup(context, x, target, group, best + worker * rows);
                              }
                            });
  for (int64_t i = 0; i < rows; ++i) {
    target.argmax[i] = ArgMax();
    for (int t = 0; t < threads; ++t) MergeArgMax(best[t * rows + i], &target.argmax[i]);
  }
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels
