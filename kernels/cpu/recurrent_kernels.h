// The inner loops of recurrent ops that each ISA implements. They are a part of KernelTable, and
// use plain pointers and sizes for the reason given in kernel_table.h.
#ifndef TIDEPOOL_KERNELS_CPU_RECURRENT_KERNELS_H_
#define TIDEPOOL_KERNELS_CPU_RECURRENT_KERNELS_H_

#include <cstdint>

#include "kernels/recurrent.h"

namespace tidepool::kernels {

// Consecutive rows of up to kStateChannels channels. CausalConvCall has the formulas.
struct ConvTile {
  int channels = 0;
  int kernel = 0;
  ConvActivation activation = ConvActivation::kNone;
  int64_t rows = 0;
  float* x = nullptr;
  int64_t x_stride = 0;
  const float* in_gate = nullptr;  // null: no gate
  int64_t in_gate_stride = 0;
  const float* out_gate = nullptr;  // null: no gate
  int64_t out_gate_stride = 0;
  const float* weight = nullptr;  // [kernel][kStateChannels]
  const float* bias = nullptr;    // [kStateChannels]
  // [kernel - 1], oldest first: the inputs before the first row, each [kStateChannels]
  float* inputs[kMaxConvKernel - 1] = {};
};

// Consecutive rows of some columns of one V head. DeltaNetCall has the formulas.
struct DeltaTile {
  int k_dim = 0;
  int columns = 0;  // kDeltaTileCols times a number up to RecurrentKernels::delta_tiles, or less
                    // than kDeltaTileCols
  int64_t rows = 0;
  const float* q = nullptr;
  int64_t q_stride = 0;
  const float* k = nullptr;
  int64_t k_stride = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
  const float* keep = nullptr;
  int64_t keep_stride = 0;
  const float* beta = nullptr;
  int64_t beta_stride = 0;
  float* out = nullptr;  // may be v
  int64_t out_stride = 0;
  // [tiles][k_dim][kDeltaTileCols]: the state before and after the rows. Both may be the same.
  const float* before = nullptr;
  float* after = nullptr;
};

struct RecurrentKernels {
  // Computes the rows, and replaces `inputs` by the last inputs.
  void (*convolve)(ConvTile* tile);
  // x = x / sqrt(|x|^2 + eps) * scale.
  void (*normalize_length)(float* x, int64_t n, float eps, float scale);
  void (*advance_delta)(const DeltaTile& tile);
  int delta_tiles;  // the largest number of tiles in a DeltaTile
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_RECURRENT_KERNELS_H_
