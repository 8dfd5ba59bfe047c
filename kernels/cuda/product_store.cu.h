// The outputs of products.
#ifndef TIDEPOOL_KERNELS_CUDA_PRODUCT_STORE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_PRODUCT_STORE_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"

namespace tidepool::kernels::cuda {

TIDEPOOL_DEVICE int64_t RowOf(const int32_t* rows, int64_t i) {
  return rows == nullptr ? i : rows[i];
}

// Stores an output of row i of the job.
TIDEPOOL_DEVICE void StoreOutput(const JobInput& input, const ProductJob& job, int i, int output,
                                 float sum) {
  if (output >= job.outputs) return;
  if (job.bias != nullptr) sum = sum + job.bias[output];
  float* out = job.out + RowOf(input.out_rows, job.out_first + i) * job.out_stride + output;
  *out = job.add ? *out + sum : sum;
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_PRODUCT_STORE_CU_H_
