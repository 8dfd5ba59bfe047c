// Reference implementations of StoreKv and Attend. Only for kernels/reference.
#ifndef TIDEPOOL_KERNELS_REFERENCE_ATTENTION_H_
#define TIDEPOOL_KERNELS_REFERENCE_ATTENTION_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// The caller has checked the arguments of both functions.
void ReferenceStoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                      absl::Span<const KvSpan> spans);

// Writes the rows of all spans to out [rows, heads * v_dim]. Each softmax is computed over all
// visible slots together, not in segments.
void ReferenceAttend(const AttendCall& call, MatrixView out);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_ATTENTION_H_
