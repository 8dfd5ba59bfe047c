// Attention over the paged KV cache, and writing into the cache.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// These functions implement ops of KernelBackend. The caller has checked the arguments. `out` is
// [rows, heads * v_dim]. Its int8 form is also written if it has one. Rows without a span become
// zero. Scratch memory is freed at the end.
void StoreKvRows(const CpuContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans);
void AttendRows(const CpuContext& context, const AttendCall& call, const ActivationBuffer& out,
                Arena* arena);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_H_
