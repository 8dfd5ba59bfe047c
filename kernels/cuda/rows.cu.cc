// Ops that work element by element.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Blocks for rows of `cols` elements: x counts parts of a row, y counts rows. A kernel visits rows
// BlockY(), BlockY() + GridY() and so on, because a grid has at most 65535 blocks in y.
Grid RowGrid(int64_t rows, int64_t cols) {
  constexpr int64_t kMaxY = 65535;
  return {static_cast<int>((cols + kThreads - 1) / kThreads),
          static_cast<int>(std::min(rows, kMaxY))};
}

TIDEPOOL_KERNEL AddKernel(ConstMatrixView x, MatrixView out) {
  const int64_t col = int64_t{BlockX()} * kThreads + ThreadIndex();
  if (col >= x.cols) return;
  for (int64_t row = BlockY(); row < x.rows; row += GridY()) {
    float* at = out.data + row * out.stride + col;
    *at = *at + x.data[row * x.stride + col];
  }
}

}  // namespace

void AddRows(const CudaContext& context, ConstMatrixView x, MatrixView out) {
  if (x.rows == 0 || x.cols == 0) return;
  Launch(context.stream, AddKernel, RowGrid(x.rows, x.cols), kThreads, 0, x, out);
}

}  // namespace tidepool::kernels::cuda
