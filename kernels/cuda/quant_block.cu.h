// One row of a quantised block of 32 columns, for products of integers. The words are loaded first
// and unpacked later, so that a thread can wait for the loads of several blocks at once.
#ifndef TIDEPOOL_KERNELS_CUDA_QUANT_BLOCK_CU_H_
#define TIDEPOOL_KERNELS_CUDA_QUANT_BLOCK_CU_H_

#include <cstddef>
#include <cstdint>

#include "kernels/code_tables.h"
#include "kernels/cuda/device.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "kernels/panel_block.h"

namespace tidepool::kernels::cuda {

inline constexpr int kBlockWords = kQuantBlock / 4;

// The bytes of a row in a block, as they are in the panel.
template <DType kType>
struct RawRow {
  static constexpr QuantFormat kFormat = FormatOf(kType);
  static constexpr int kCodeWords = kFormat.code_bits;  // 4 bytes of codes per bit
  static constexpr int kExtraWords = kFormat.extra_bits;

  uint32_t codes[kCodeWords];
  uint32_t extra[kExtraWords > 0 ? kExtraWords : 1];
  uint16_t step;      // f16 d, or MXFP4's exponent
  uint16_t min_step;  // f16 m or dmin, if has_min
  uint16_t scales;    // the integer scales of a block of 256-column records, two bytes if halves
  uint16_t min;       // mn of Q4_K and Q5_K
};

template <DType kType>
TIDEPOOL_DEVICE RawRow<kType> LoadRow(const std::byte* panel, int64_t block, int row) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const PanelBlock at = PanelBlock::At<kType>(panel, block);
  RawRow<kType> raw = {};
  const auto words = [&](int offset) {
    return reinterpret_cast<const uint32_t*>(at.block + offset) + row;
  };
  TIDEPOOL_UNROLL
  for (int i = 0; i < RawRow<kType>::kCodeWords; ++i) {
    raw.codes[i] = LoadOnce(words(kFormat.codes() + i * kVectorBytes));
  }
  TIDEPOOL_UNROLL
  for (int i = 0; i < RawRow<kType>::kExtraWords; ++i) {
    raw.extra[i] = LoadOnce(words(kFormat.extra() + i * kVectorBytes));
  }
  if constexpr (kType == DType::kMXFP4) {
    raw.step = LoadOnce(reinterpret_cast<const uint8_t*>(at.block) + row);
    return raw;
  }
  const auto* halves =
      reinterpret_cast<const uint16_t*>(kFormat.head > 0 ? at.record : at.block) + row;
  raw.step = LoadOnce(halves);
  if constexpr (kFormat.has_min) raw.min_step = LoadOnce(halves + kPanelRows);
  if constexpr (kFormat.halves) {
    raw.scales = LoadOnce(reinterpret_cast<const uint16_t*>(at.block) + row);
  } else if constexpr (kFormat.head > 0) {
    raw.scales = LoadOnce(reinterpret_cast<const uint8_t*>(at.block) + row);
    if constexpr (kFormat.has_min) {
      raw.min = LoadOnce(reinterpret_cast<const uint8_t*>(at.block) + kPanelRows + row);
    }
  }
  return raw;
}

// Looks up the values of eight codes, which are the nibbles of `codes`. `even` gets the values of
// the low nibbles, and `odd` the values of the high nibbles.
template <DType kType>
TIDEPOOL_DEVICE void LookUp(uint32_t codes, uint32_t* even, uint32_t* odd) {
  constexpr CodeWords kWords = kType == DType::kMXFP4 ? WordsOf(kE2M1Doubled) : WordsOf(kIq4Values);
  constexpr auto kLow0 = static_cast<uint32_t>(kWords.low);
  constexpr auto kLow1 = static_cast<uint32_t>(kWords.low >> 32);
  constexpr auto kHigh0 = static_cast<uint32_t>(kWords.high);
  constexpr auto kHigh1 = static_cast<uint32_t>(kWords.high >> 32);
  // Each inner BytePermute looks up four codes in one half of the table, by their low three bits.
  // The outer one chooses the result of the low or high half for each code, by the code's bit 3.
  const uint32_t choose = 0x32103210 | (codes & 0x88888888) >> 1;
  const uint32_t first =
      BytePermute(BytePermute(kLow0, kLow1, codes), BytePermute(kHigh0, kHigh1, codes), choose);
  const uint32_t second = BytePermute(BytePermute(kLow0, kLow1, codes >> 16),
                                      BytePermute(kHigh0, kHigh1, codes >> 16), choose >> 16);
  *even = BytePermute(first, second, 0x6420);
  *odd = BytePermute(first, second, 0x7531);
}

// Unpacks a row. words[g] gets the codes of columns 4g to 4g + 3, as signed bytes. The zero point
// is not subtracted. If the type has a code table, words[g] gets the values instead of the codes.
template <DType kType>
TIDEPOOL_DEVICE void UnpackCodes(const RawRow<kType>& raw, uint32_t (&words)[kBlockWords]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  TIDEPOOL_UNROLL
  for (int g = 0; g < kBlockWords; ++g) {
    if constexpr (HasCodeTable(kType)) {
      if (g < 4) LookUp<kType>(raw.codes[g % 4], &words[g], &words[g + 4]);
    } else if constexpr (kFormat.code_bits == 8) {
      words[g] = raw.codes[g % RawRow<kType>::kCodeWords];
    } else if constexpr (kFormat.code_bits == 4) {
      words[g] = raw.codes[g % 4] >> (g < 4 ? 0 : 4) & 0x0f0f0f0f;
    } else {
      words[g] = raw.codes[g % 2] >> (2 * (g / 2)) & 0x03030303;
    }
    if constexpr (kFormat.extra_bits == 1) {
      words[g] |= (raw.extra[0] >> g & 0x01010101) << kFormat.code_bits;
    } else if constexpr (kFormat.extra_bits == 2) {
      words[g] |= (raw.extra[g % 2] >> (2 * (g / 2)) & 0x03030303) << kFormat.code_bits;
    }
  }
}

// Returns the scales of a row, like ScalesAt of panel_block.h.
template <DType kType>
TIDEPOOL_DEVICE BlockScales ScalesOf(const RawRow<kType>& raw) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  BlockScales s;
  if constexpr (kType == DType::kMXFP4) {
    s.step = HalfOfE8M0(static_cast<uint8_t>(raw.step));
    return s;
  }
  s.step = FloatOfF16(raw.step);
  if constexpr (kFormat.has_min) s.min_step = FloatOfF16(raw.min_step);
  if constexpr (kFormat.halves) {
    s.min_step = -s.min_step;
    TIDEPOOL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int both = raw.scales >> (8 * h) & 0xff;
      s.scale[h] = kFormat.has_min ? both & 15 : static_cast<int8_t>(both);
      s.min[h] = both >> 4;
    }
  } else if constexpr (kFormat.head > 0) {
    s.step *= kFormat.has_min ? static_cast<float>(raw.scales)
                              : static_cast<float>(static_cast<int8_t>(raw.scales));
    if constexpr (kFormat.has_min) s.min_step *= -static_cast<float>(raw.min);
  }
  return s;
}

// The int8 form of one block of an activation's row.
struct ActivationBlock {
  uint32_t words[kBlockWords];
  int half_sums[2];
  float scale;
};

// Returns the exact integer of ops.h: dot or I.
template <DType kType>
TIDEPOOL_DEVICE int DotOf(const uint32_t (&codes)[kBlockWords], const BlockScales& s,
                          const ActivationBlock& x) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  int dots[2] = {0, 0};
  TIDEPOOL_UNROLL
  for (int g = 0; g < kBlockWords; ++g) {
    const int half = kFormat.halves ? g / 4 : 0;
    dots[half] = Dot4(codes[g], x.words[g], dots[half]);
  }
  if constexpr (kFormat.halves) {
    TIDEPOOL_UNROLL
    for (int h = 0; h < 2; ++h) dots[h] -= kFormat.zero * x.half_sums[h];
    return s.scale[0] * dots[0] + s.scale[1] * dots[1];
  }
  return dots[0] - kFormat.zero * (x.half_sums[0] + x.half_sums[1]);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_QUANT_BLOCK_CU_H_
