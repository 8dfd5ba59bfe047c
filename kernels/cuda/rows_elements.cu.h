// ForElements: kernels that compute each element of a matrix separately.
#ifndef TIDEPOOL_KERNELS_CUDA_ROWS_ELEMENTS_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ROWS_ELEMENTS_CU_H_

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/rows_device.cu.h"

namespace tidepool::kernels::cuda {

inline constexpr int kElementThreads = 256;

template <typename Function>
TIDEPOOL_KERNEL ElementKernel(Function function, int64_t cols, int blocks_per_row) {
  const int64_t row = BlockX() / blocks_per_row;
  const int64_t col = int64_t{BlockX() % blocks_per_row} * kElementThreads + ThreadIndex();
  if (col < cols) function(row, col);
}

// Calls function(row, col) on the device for each element of a [rows, cols] matrix. Function is a
// struct that can be copied as bytes.
template <typename Function>
void ForElements(const CudaContext& context, int64_t rows, int64_t cols, const Function& function) {
  if (rows == 0 || cols == 0) return;
  const int blocks_per_row = BlocksOf(cols, kElementThreads);
  Launch(context.stream, ElementKernel<Function>, {static_cast<int>(rows * blocks_per_row)},
         kElementThreads, 0, function, cols, blocks_per_row);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ROWS_ELEMENTS_CU_H_
