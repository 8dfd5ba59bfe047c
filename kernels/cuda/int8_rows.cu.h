// The int8 form of rows (Activation), as kernels read and write it.
#ifndef TIDEPOOL_KERNELS_CUDA_INT8_ROWS_CU_H_
#define TIDEPOOL_KERNELS_CUDA_INT8_ROWS_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace tidepool::kernels::cuda {

// Rows are `cols` quants apart. Block b of all rows begins at quants + b * kQuantBlock.
template <typename Int8, typename Float, typename Int16>
struct BasicInt8Rows {
  Int8* quants = nullptr;
  Float* scales = nullptr;
  Float* sums = nullptr;
  Int16* half_sums = nullptr;
  int64_t cols = 0;
};
using Int8Rows = BasicInt8Rows<int8_t, float, int16_t>;
using ConstInt8Rows = BasicInt8Rows<const int8_t, const float, const int16_t>;

inline Int8Rows Int8RowsOf(const ActivationBuffer& buffer) {
  return {buffer.quants, buffer.scales, buffer.sums, buffer.half_sums, buffer.values.cols};
}

// The scale of a block, as ops.h defines it.
struct BlockScale {
  float scale;
  float inverse;  // 0 if all quants are 0

  // The bits are those of the largest magnitude. As integers, magnitudes have the same order, and
  // infinity and NaN are the largest.
  TIDEPOOL_DEVICE explicit BlockScale(uint32_t amax_bits) {
    const bool finite = amax_bits < 0x7f800000;
    const float amax = FloatFromBits(amax_bits);
    const bool zero = !finite || amax < kTinyBlock;
    inverse = zero ? 0.0f : 127.0f / amax;
    scale = !finite ? __builtin_nanf("") : zero ? 0.0f : amax / 127.0f;
  }
  TIDEPOOL_DEVICE int Quant(float value) const {
    return inverse == 0.0f ? 0 : static_cast<int>(RoundToEven(value * inverse));
  }
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_INT8_ROWS_CU_H_
