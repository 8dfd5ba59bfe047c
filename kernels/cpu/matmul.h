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
// out costs nothing beside the work.
int64_t TaskGrain(const CpuContext& context, int64_t tasks);

// The int8 form of rows whose values are in place, if `rows` has one.
void QuantizeRows(const CpuContext& context, ConstMatrixView values, const ActivationBuffer& rows);

// KernelBackend's ops of these names; arguments are checked by the caller.
void MultiplyTargets(const CpuContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets);
void MultiplySwiGlu(const CpuContext& context, const Activation& x, const PackedMatrix& gate,
                    const PackedMatrix& up, const ActivationBuffer& out);
void MultiplyGroups(const CpuContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_MATMUL_H_
