// Products: splits a weight's panels into tiles, distributes tiles among threads, and stores the
// results.
#ifndef TIDEPOOL_KERNELS_CPU_MATMUL_H_
#define TIDEPOOL_KERNELS_CPU_MATMUL_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// Objects that the parts of the CPU backend share. Borrowed.
struct CpuContext {
  const KernelTable* kernels = nullptr;
  base::ThreadPool* pool = nullptr;
  Precision precision = Precision::kFast;
};

// The grain for ParallelFor: small enough that threads finish at about the same time, large enough
// that distribution costs little. `macs`: multiply-adds of all tasks. For little work it returns
// one range, which the caller computes, because another thread would start too late to help.
int64_t TaskGrain(const CpuContext& context, int64_t tasks, int64_t macs);

// Computes the int8 form of rows whose values are already set, if `rows` has an int8 form.
void QuantizeRows(const CpuContext& context, ConstMatrixView values, const ActivationBuffer& rows);

// Number of groups of panels that share a tile, in a weight of `rows` rows; and the output columns
// of group `group`.
int64_t GroupCount(int64_t rows);
int64_t GroupCols(const PackedMatrix& weight, int64_t group);

// Rows of an activation: all in order, or the ones in `ids`. Their columns from `column` on, which
// is a multiple of kQuantBlock if x has an int8 form that the product uses.
struct RowSource {
  const Activation& x;
  const int32_t* ids = nullptr;
  int64_t column = 0;

  int64_t At(int64_t i) const { return ids == nullptr ? i : ids[i]; }
};

// Rows [first, first + rows) of `source` times a group of a weight's panels. Requires: rows <=
// kTileRows.
struct TileJob {
  const PackedMatrix& weight;
  int64_t group;
  const RowSource& source;
  int64_t first;
  int rows;
};
// Writes to out [rows][kTileCols].
void ComputeTile(const CpuContext& context, const TileJob& job, float* out);

// Implement the ops of KernelBackend. The caller has checked the arguments.
void MultiplyTargets(const CpuContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets);
void MultiplyHead(const CpuContext& context, const Activation& x, const HeadTarget& target,
                  Arena* arena);
void MultiplyHeads(const CpuContext& context, const Activation& x,
                   absl::Span<const PackedMatrix> weights, MatrixView out);
void MultiplyGlu(const CpuContext& context, const Activation& x, const FfnWeights& ffn,
                 const ActivationBuffer& out);
void MultiplyGroups(const CpuContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_MATMUL_H_
