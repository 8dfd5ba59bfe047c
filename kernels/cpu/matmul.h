// Products: a weight's panels cut into tiles, tiles handed to threads, results put where they
// belong.
#ifndef TIDEPOOL_KERNELS_CPU_MATMUL_H_
#define TIDEPOOL_KERNELS_CPU_MATMUL_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// What the parts of the CPU backend share. Borrowed.
struct CpuContext {
  const KernelTable* kernels = nullptr;
  base::ThreadPool* pool = nullptr;
  Precision precision = Precision::kFast;
};

// Ranges for ParallelFor: small enough that threads end together, large enough that handing them
// out costs nothing beside the work. `macs`: multiply-adds of all tasks; one range, which the
// caller computes by itself, where another thread would come too late to help.
int64_t TaskGrain(const CpuContext& context, int64_t tasks, int64_t macs);

// The int8 form of rows whose values are in place, if `rows` has one.
void QuantizeRows(const CpuContext& context, ConstMatrixView values, const ActivationBuffer& rows);

// Groups of panels that share a tile, in a weight of `rows` rows; and the columns of the output
// that group `group` fills.
int64_t GroupCount(int64_t rows);
int64_t GroupCols(const PackedMatrix& weight, int64_t group);

// Rows of an activation: all in order, or those that `ids` names.
struct RowSource {
  const Activation& x;
  const int32_t* ids = nullptr;

  int64_t At(int64_t i) const { return ids == nullptr ? i : ids[i]; }
};

// Rows [first, first + rows) of `source`, rows <= kTileRows, times a group of a weight's panels.
struct TileJob {
  const PackedMatrix& weight;
  int64_t group;
  const RowSource& source;
  int64_t first;
  int rows;
};
// Into out [rows][kTileCols].
void ComputeTile(const CpuContext& context, const TileJob& job, float* out);

// KernelBackend's ops of these names; arguments are checked by the caller.
void MultiplyTargets(const CpuContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets);
void MultiplyHead(const CpuContext& context, const Activation& x, const HeadTarget& target,
                  Arena* arena);
void MultiplySwiGlu(const CpuContext& context, const Activation& x, const PackedMatrix& gate,
                    const PackedMatrix& up, const ActivationBuffer& out);
void MultiplyGroups(const CpuContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_MATMUL_H_
