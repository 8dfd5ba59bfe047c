// The int8 form of a block of 32 columns, computed by a warp.
#ifndef TIDEPOOL_KERNELS_CUDA_QUANTIZE_LANE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_QUANTIZE_LANE_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

// Where the int8 form of an Activation is. Null if there is none.
struct Int8Form {
  int8_t* quants = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int16_t* half_sums = nullptr;
};

inline Int8Form Int8FormOf(const ActivationBuffer& buffer) {
  return {buffer.quants, buffer.scales, buffer.sums, buffer.half_sums};
}

// Stores the int8 form of block `block` (counted over all rows), as ops.h defines it. Lane k of the
// warp has column k of the block.
TIDEPOOL_DEVICE void QuantizeLane(float x, int64_t block, const Int8Form& out) {
  const int lane = LaneIndex();
  // As integers, magnitudes have the same order, and infinity and NaN are the largest.
  uint32_t amax_bits = FloatBits(x) & 0x7fffffff;
  TIDEPOOL_UNROLL
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    const uint32_t other = ShuffleXor(amax_bits, mask);
    amax_bits = other > amax_bits ? other : amax_bits;
  }
  const float amax = FloatFromBits(amax_bits);
  const bool finite = amax_bits < 0x7f800000;
  const bool zero = !finite || amax < kTinyBlock;
  const int quant = zero ? 0 : static_cast<int>(RoundToEven(x * (127.0f / amax)));
  int sum = quant;
  TIDEPOOL_UNROLL
  for (int mask = kHalfBlock / 2; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
  const int both = sum + ShuffleXor(sum, kHalfBlock);
  out.quants[block * kQuantBlock + lane] = static_cast<int8_t>(quant);
  if (lane % kHalfBlock == 0) {
    out.half_sums[2 * block + lane / kHalfBlock] = static_cast<int16_t>(sum);
  }
  if (lane != 0) return;
  const float scale = !finite ? FloatFromBits(0x7fc00000) : zero ? 0.0f : amax / 127.0f;
  out.scales[block] = scale;
  out.sums[block] = scale * static_cast<float>(both);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_QUANTIZE_LANE_CU_H_
