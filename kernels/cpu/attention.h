// Attention over the paged KV cache, and its writes.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// KernelBackend's ops of these names; arguments are checked by the caller. `out` is [rows, heads *
// v_dim], its int8 form included; rows of no span get zeros. Scratch is given back to the arena.
void StoreKvRows(const CpuContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans);
void AttendRows(const CpuContext& context, const AttendCall& call, const ActivationBuffer& out,
                Arena* arena);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_H_
