// The gated activation between the matrices of a dense FFN.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/glu_value.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A warp computes 32 columns of a row.
TIDEPOOL_KERNEL GluKernel(MatrixView gate, ConstMatrixView up, Glu glu, Int8Rows int8) {
  const int64_t block = int64_t{BlockX()} * (kThreads / kWarpLanes) + WarpIndex();
  const int64_t col = block * kQuantBlock + LaneIndex();
  if (block * kQuantBlock >= gate.cols) return;
  for (int64_t row = BlockY(); row < gate.rows; row += GridY()) {
    float value = 0;
    if (col < gate.cols) {
      float* at = gate.data + row * gate.stride + col;
      value = GluOf(glu, *at, up.data[row * up.stride + col]);
      *at = value;
    }
    if (int8.quants != nullptr) QuantizeBlock(value, row * (gate.cols / kQuantBlock) + block, int8);
  }
}

}  // namespace

void ApplyGlu(const CudaContext& context, ConstMatrixView up, const Glu& glu,
              const ActivationBuffer& out) {
  const MatrixView& gate = out.values;
  if (gate.rows == 0 || gate.cols == 0) return;
  constexpr int64_t kMaxY = 65535;
  const Grid grid = {static_cast<int>((gate.cols + kThreads - 1) / kThreads),
                     static_cast<int>(std::min(gate.rows, kMaxY))};
  Launch(context.stream, GluKernel, grid, kThreads, 0, gate, up, glu, Int8RowsOf(out));
}

}  // namespace tidepool::kernels::cuda
