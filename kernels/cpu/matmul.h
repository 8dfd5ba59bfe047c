// Products of matrices. Splits the panels of a weight into tiles, distributes the tiles among
// threads, and stores the results.
#ifndef TIDEPOOL_KERNELS_CPU_MATMUL_H_
#define TIDEPOOL_KERNELS_CPU_MATMUL_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// What all parts of the CPU backend use. Does not own the objects.
struct CpuContext {
  const KernelTable* kernels = nullptr;
  base::ThreadPool* pool = nullptr;
  Precision precision = Precision::kFast;
};

// Returns the grain for ParallelFor. It is small enough that threads finish at about the same time,
// and large enough that distribution costs little. `macs` is the number of multiply-adds in all
// tasks. If `macs` is small, the grain is `tasks`, so the calling thread computes all tasks.
// Another thread would start too late to help.
int64_t TaskGrain(const CpuContext& context, int64_t tasks, int64_t macs);

// If `rows` has an int8 form, computes it. The values of `rows` are already set.
void QuantizeRows(const CpuContext& context, ConstMatrixView values, const ActivationBuffer& rows);

// The panels of a weight are divided into groups. The panels of a group belong to one tile.
// GroupCount returns the number of groups of a weight with `rows` rows. GroupCols returns the
// number of output columns of group `group`.
int64_t GroupCount(int64_t rows);
int64_t GroupCols(const PackedMatrix& weight, int64_t group);

// Selects rows of an activation: all rows in order, or only those in `ids`. Of each row, only the
// columns from `column` on are used. `column` is a multiple of kQuantBlock if the product uses x's
// int8 form.
struct RowSource {
  const Activation& x;
  const int32_t* ids = nullptr;
  int64_t column = 0;

  int64_t At(int64_t i) const { return ids == nullptr ? i : ids[i]; }
};

// One tile to compute: rows [first, first + rows) of `source`, multiplied with a group of a
// weight's panels. Requires: rows <= kTileRows.
struct TileJob {
  const PackedMatrix& weight;
  int64_t group;
  const RowSource& source;
  int64_t first;
  int rows;
};
// Computes a tile and writes it to out [rows][kTileCols].
void ComputeTile(const CpuContext& context, const TileJob& job, float* out);

// These functions implement ops of KernelBackend. The caller has checked the arguments.
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
