// Products of at least kMinTensorCoreRows rows with quantised weights, on int8 tensor cores. They
// are the products of cuda_ops.h and have the same bits. For fewer rows, the tiles of these
// products are mostly empty, so those of product_mma.cu.h and product_int8.cu.h are faster.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/ops.h"

namespace tidepool::kernels::cuda {

// Tensor cores are used for products of at least this number of rows. For the groups of GroupedFfn,
// the average number of rows per group counts.
inline constexpr int kMinTensorCoreRows = 16;

// Return whether the functions below can compute a product, and are the faster choice.
bool UsesTensorCores(const CudaContext& context, const PackedMatrix& weight, int64_t rows);
bool UsesTensorCores(const CudaContext& context, const FfnWeights& ffn, int64_t rows);
bool UsesTensorCores(const CudaContext& context, absl::Span<const ExpertGroup> groups);

// Each requires that UsesTensorCores is true for some number of rows.
// Uses the rows of x from first_row on. Their number is that of target.out.
void TensorCoreTarget(const CudaContext& context, const Activation& x, int64_t first_row,
                      const MatMulTarget& target);
void TensorCoreHeads(const CudaContext& context, const Activation& x,
                     absl::Span<const PackedMatrix> weights, MatrixView out);
void TensorCoreGlu(const CudaContext& context, const Activation& x, const FfnWeights& ffn,
                   const ActivationBuffer& out);
void TensorCoreGroups(const CudaContext& context, const Activation& x,
                      absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_H_
