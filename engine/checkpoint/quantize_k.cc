#include "engine/checkpoint/quantize_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/checkpoint/quantize_search.h"
#include "kernels/math.h"

namespace tidepool::engine::quantize {
namespace {

using kernels::F16ToF32;
using kernels::F32ToF16;

constexpr int kElements = 256;

void StoreHalf(uint16_t half, uint8_t* at) { std::memcpy(at, &half, sizeof(half)); }

int RoundTo(float value, int low, int high) {
  return static_cast<int>(
      kernels::RoundToEven(std::clamp(value, static_cast<float>(low), static_cast<float>(high))));
}

// Eight sub-blocks of 32 elements with six-bit scales and minimums: value = d * scale * code - dmin
// * min.
struct AffineBlock {
  static constexpr int kSubBlocks = 8;
  static constexpr int kSubElements = 32;
  static constexpr int kMaxScale = 63;

  uint16_t d = 0;
  uint16_t dmin = 0;
  std::array<int, kSubBlocks> scales = {};
  std::array<int, kSubBlocks> mins = {};
  std::array<int8_t, kElements> codes = {};
};

// Chooses the integer scale and the integer minimum of a sub-block. It tries the pairs near the
// fitted pair, and takes the pair whose codes have the least error. A neighbouring minimum can
// compensate for the rounding of the scale.
void ChooseScales(const float* x, AffineFit wanted, CodeRange range, int b, AffineBlock* block) {
  const float d = F16ToF32(block->d);
  const float dmin = F16ToF32(block->dmin);
  const int scale = d > 0 ? RoundTo(wanted.step / d, 0, AffineBlock::kMaxScale) : 0;
  const int minimum = dmin > 0 ? RoundTo(-wanted.minimum / dmin, 0, AffineBlock::kMaxScale) : 0;
  float least = std::numeric_limits<float>::infinity();
  for (int s = std::max(0, scale - 1); s <= std::min(AffineBlock::kMaxScale, scale + 1); ++s) {
    for (int m = std::max(0, minimum - 1); m <= std::min(AffineBlock::kMaxScale, minimum + 1);
         ++m) {
      const AffineFit fit = {d * static_cast<float>(s), -dmin * static_cast<float>(m)};
      const float error = ErrorOf(x, AffineBlock::kSubElements, fit, range);
      if (!(error < least)) continue;
      least = error;
      block->scales[b] = s;
      block->mins[b] = m;
    }
  }
  const AffineFit fit = {d * static_cast<float>(block->scales[b]),
                         -dmin * static_cast<float>(block->mins[b])};
  RoundCodes(x, AffineBlock::kSubElements, fit, range,
             block->codes.data() + b * AffineBlock::kSubElements);
}

AffineBlock SearchAffine(const float* x, float high) {
  std::array<AffineFit, AffineBlock::kSubBlocks> fits;
  float largest_step = 0;
  float largest_minimum = 0;
  for (int b = 0; b < AffineBlock::kSubBlocks; ++b) {
    fits[b] = FitAffine(x + b * AffineBlock::kSubElements, AffineBlock::kSubElements, high,
                        Minimum::kNotPositive);
    largest_step = std::max(largest_step, fits[b].step);
    largest_minimum = std::max(largest_minimum, -fits[b].minimum);
  }
  AffineBlock block;
  block.d = F32ToF16(largest_step / AffineBlock::kMaxScale);
  block.dmin = F32ToF16(largest_minimum / AffineBlock::kMaxScale);
  for (int b = 0; b < AffineBlock::kSubBlocks; ++b) {
    ChooseScales(x + b * AffineBlock::kSubElements, fits[b], {0, high}, b, &block);
  }
  return block;
}

// Stores d, dmin, and then the eight scales and eight minimums of six bits in 12 bytes. Bytes 0 to
// 3 contain scales 0 to 3, and bytes 4 to 7 contain minimums 0 to 3. The upper two bits of these
// bytes are the upper two bits of scales and minimums 4 to 7. Bytes 8 to 11 contain the lower four
// bits of scales and minimums 4 to 7.
void StoreScales(const AffineBlock& block, uint8_t* out) {
  StoreHalf(block.d, out);
  StoreHalf(block.dmin, out + 2);
  uint8_t* const packed = out + 4;
  for (int b = 0; b < 4; ++b) {
    packed[b] = static_cast<uint8_t>(block.scales[b] | (block.scales[b + 4] >> 4) << 6);
    packed[b + 4] = static_cast<uint8_t>(block.mins[b] | (block.mins[b + 4] >> 4) << 6);
    packed[b + 8] =
        static_cast<uint8_t>((block.scales[b + 4] & 15) | (block.mins[b + 4] & 15) << 4);
  }
}

// The sub-blocks 2p and 2p + 1 share 32 bytes of nibbles.
void StoreNibbles(const AffineBlock& block, uint8_t* out) {
  for (int p = 0; p < 4; ++p) {
    const int8_t* const low = block.codes.data() + 64 * p;
    for (int l = 0; l < 32; ++l) {
      out[32 * p + l] = static_cast<uint8_t>((low[l] & 15) | (low[l + 32] & 15) << 4);
    }
  }
}

}  // namespace

void QuantizeQ4_K(const float* x, uint8_t* block) {
  const AffineBlock found = SearchAffine(x, 15);
  StoreScales(found, block);
  StoreNibbles(found, block + 16);
}

void QuantizeQ5_K(const float* x, uint8_t* block) {
  const AffineBlock found = SearchAffine(x, 31);
  StoreScales(found, block);
  uint8_t* const high = block + 16;
  for (int l = 0; l < 32; ++l) {
    int bits = 0;
    for (int b = 0; b < 8; ++b) bits |= (found.codes[32 * b + l] >> 4) << b;
    high[l] = static_cast<uint8_t>(bits);
  }
  StoreNibbles(found, block + 48);
}

void QuantizeQ6_K(const float* x, uint8_t* block) {
  constexpr int kSubBlocks = 16;
  constexpr int kSubElements = 16;
  constexpr CodeRange kRange = {-32, 31};
  std::array<float, kSubBlocks> wanted;
  float extreme = 0;
  for (int b = 0; b < kSubBlocks; ++b) {
    wanted[b] = FitScale(x + b * kSubElements, kSubElements, kRange);
    if (std::abs(wanted[b]) > std::abs(extreme)) extreme = wanted[b];
  }
  // The element with the largest magnitude becomes -128, because the range of codes has one more
  // step at its negative end.
  const uint16_t half = F32ToF16(extreme / -128);
  const float d = F16ToF32(half);
  int8_t codes[kElements];
  uint8_t* const scales = block + 192;
  for (int b = 0; b < kSubBlocks; ++b) {
    const float* const sub = x + b * kSubElements;
    const int middle = d != 0 ? RoundTo(wanted[b] / d, -128, 127) : 0;
    int best = middle;
    float least = std::numeric_limits<float>::infinity();
    for (int s = std::max(-128, middle - 1); s <= std::min(127, middle + 1); ++s) {
      const float error = ErrorOf(sub, kSubElements, {d * static_cast<float>(s), 0}, kRange);
      if (error < least) {
        least = error;
        best = s;
      }
    }
    scales[b] = static_cast<uint8_t>(static_cast<int8_t>(best));
    RoundCodes(sub, kSubElements, {d * static_cast<float>(best), 0}, kRange,
               codes + b * kSubElements);
  }
  // Two elements whose distance is 64 share a byte for their lower four bits. Four elements with a
  // distance of 32 between neighbours share a byte for their upper two bits.
  for (int n = 0; n < 2; ++n) {
    for (int l = 0; l < 32; ++l) {
      int q[4];
      for (int g = 0; g < 4; ++g) q[g] = codes[128 * n + 32 * g + l] + 32;
      block[64 * n + l] = static_cast<uint8_t>((q[0] & 15) | (q[2] & 15) << 4);
      block[64 * n + 32 + l] = static_cast<uint8_t>((q[1] & 15) | (q[3] & 15) << 4);
      block[128 + 32 * n + l] =
          static_cast<uint8_t>(q[0] >> 4 | (q[1] >> 4) << 2 | (q[2] >> 4) << 4 | (q[3] >> 4) << 6);
    }
  }
  StoreHalf(half, block + 208);
}

}  // namespace tidepool::engine::quantize
