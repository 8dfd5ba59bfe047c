// Values of four-bit codes and of byte-sized scales that quantising and dequantising share.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_BLOCK_VALUES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_BLOCK_VALUES_H_

#include <array>
#include <cstdint>

#include "kernels/math.h"

namespace tidepool::engine {

// Of IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// Twice the values of E2M1, the four-bit float of MXFP4 and NVFP4; scales are halved in turn.
inline constexpr std::array<int8_t, 16> kE2M1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

// Half of 2^(e - 127), the scale of MXFP4; the two smallest are subnormal.
inline float HalfOfE8M0(int e) {
  return kernels::FloatFromBits(e < 2 ? uint32_t{0x00200000} << e
                                      : static_cast<uint32_t>(e - 1) << 23);
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_BLOCK_VALUES_H_
