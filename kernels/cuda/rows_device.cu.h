// Functions that the kernels of row ops, attention and recurrent ops share. Each has the same bits
// as the CPU's vector code (kernels/cpu/inner.h).
#ifndef TIDEPOOL_KERNELS_CUDA_ROWS_DEVICE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ROWS_DEVICE_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/int8_rows.cu.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

// The lanes of a sum over a row (ops.h).
inline constexpr int kSumLanes = 8;

// Adds up the 8 lanes of a sum. Each group of 8 lanes of a warp gets its own sum. All lanes of the
// warp must call this. An addition is commutative, so all 8 lanes compute the tree of ops.h.
TIDEPOOL_DEVICE float SumOfLanes(float lane) {
  lane += ShuffleXor(lane, 4);
  lane += ShuffleXor(lane, 2);
  return lane + ShuffleXor(lane, 1);
}

// One element of the int8 form, and what its block shares.
struct QuantElement {
  int quant;
  int half_sum;  // the sum of the half block that has the element
  float scale;
};

// Computes the int8 form of a block. Lane i of the warp has element i. All lanes must call this.
TIDEPOOL_DEVICE QuantElement QuantizeElement(float x) {
  static_assert(kQuantBlock == kWarpLanes);
  uint32_t amax_bits = FloatBits(x) & 0x7fffffff;
  TIDEPOOL_UNROLL
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    const uint32_t other = ShuffleXor(amax_bits, mask);
    amax_bits = other > amax_bits ? other : amax_bits;
  }
  const BlockScale scale(amax_bits);
  QuantElement element = {scale.Quant(x), 0, scale.scale};
  element.half_sum = element.quant;
  TIDEPOOL_UNROLL
  for (int mask = kHalfBlock / 2; mask > 0; mask /= 2) {
    element.half_sum += ShuffleXor(element.half_sum, mask);
  }
  return element;
}

// Writes block `block` of the int8 form. Lane i of the warp has element i. All lanes must call
// this.
TIDEPOOL_DEVICE void QuantizeBlock(float x, int64_t block, const Int8Rows& out) {
  const QuantElement element = QuantizeElement(x);
  const int sum = element.half_sum + ShuffleXor(element.half_sum, kHalfBlock);
  const int lane = LaneIndex();
  out.quants[block * kQuantBlock + lane] = static_cast<int8_t>(element.quant);
  if (lane % kHalfBlock == 0) {
    out.half_sums[2 * block + lane / kHalfBlock] = static_cast<int16_t>(element.half_sum);
  }
  if (lane == 0) {
    out.scales[block] = element.scale;
    out.sums[block] = element.scale * static_cast<float>(sum);
  }
}

// Returns the factor of a row's RMS norm.
TIDEPOOL_DEVICE float InverseRms(float squares, int64_t n, float eps) {
  const float mean = squares / static_cast<float>(n);
  return 1.0f / SquareRoot(mean + eps);
}

// Number of blocks of `size` elements that `count` elements need.
inline int BlocksOf(int64_t count, int64_t size) {
  return static_cast<int>((count + size - 1) / size);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ROWS_DEVICE_CU_H_
