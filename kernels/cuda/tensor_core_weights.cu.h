// Quantised weights as fragments of Mma32 and Mma16. panel.h defines the bytes.
//
// A panel's rows and groups of four columns are just those of a fragment: lane l holds row l / 4 of
// the panel, and of its columns those of group l % 4 (the low half of the block) and of group 4 + l
// % 4 (the high half). So a warp reads a block of a panel as 128 adjacent bytes, and no weight
// passes through shared memory.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_WEIGHTS_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_WEIGHTS_CU_H_

#include <cstddef>
#include <cstdint>

#include "kernels/code_tables.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

// Whether the integer scales of half blocks are multiplied into the codes. The products fit into
// signed bytes: in Q2_K they are at most 45. In Q3_K they are in [-124, 128], so there the negative
// products are used.
static constexpr bool HasFoldedScales(DType dtype) {
  return dtype == DType::kQ2_K || dtype == DType::kQ3_K;
}
// Whether the product of a block is the sum of two products, of half blocks.
static constexpr bool HasTwoProducts(DType dtype) {
  return FormatOf(dtype).halves && !HasFoldedScales(dtype);
}
// Whether the minimum is multiplied by the sums of half blocks.
static constexpr bool HasHalfMinimum(DType dtype) {
  return FormatOf(dtype).halves && FormatOf(dtype).has_min;
}

// What a lane needs of one block of a panel, as it is stored.
struct PanelWords {
  uint32_t low;     // codes: of the low half, or of both halves
  uint32_t high;    // codes of the high half, if codes are bytes
  uint32_t extra;   // more bits of the codes
  uint32_t steps;   // d, and m or dmin in the high 16 bits; or the exponent e
  uint32_t scales;  // integer scales: sc and mn, sc[0] and sc[1], or sm[0] and sm[1]
};

TIDEPOOL_DEVICE uint32_t WordAt(const std::byte* data, int offset) {
  return *reinterpret_cast<const uint32_t*>(data + offset);
}
TIDEPOOL_DEVICE uint32_t HalfAt(const std::byte* data, int offset) {
  return *reinterpret_cast<const uint16_t*>(data + offset);
}
TIDEPOOL_DEVICE uint32_t ByteOf(const std::byte* data, int offset) {
  return static_cast<uint32_t>(data[offset]);
}

// Loads block b of a panel.
template <DType kType>
TIDEPOOL_DEVICE PanelWords LoadPanelWords(const std::byte* panel, int b, int lane) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const std::byte* record = panel + int64_t{b / kFormat.blocks} * kFormat.record_bytes();
  const std::byte* block = record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes();
  const int row = lane / 4;
  const int group = lane % 4;
  const int byte = (group * kPanelRows + row) * 4;
  // in pairs, two groups share the words of a vector
  const int pair = (group % 2 * kPanelRows + row) * 4;
  PanelWords words = {};
  words.low = WordAt(block, kFormat.codes() + (kFormat.code_bits == 2 ? pair : byte));
  if constexpr (kFormat.code_bits == 8) {
    words.high = WordAt(block, kFormat.codes() + 4 * kVectorBytes + byte);
  }
  if constexpr (kFormat.extra_bits == 1) words.extra = WordAt(block, kFormat.extra() + 4 * row);
  if constexpr (kFormat.extra_bits == 2) words.extra = WordAt(block, kFormat.extra() + pair);
  if constexpr (kType == DType::kMXFP4) {
    words.steps = ByteOf(block, row);
  } else {
    const std::byte* steps = kFormat.head > 0 ? record : block;
    words.steps = HalfAt(steps, 2 * row);
    if constexpr (kFormat.has_min) words.steps |= HalfAt(steps, 2 * (kPanelRows + row)) << 16;
  }
  if constexpr (kFormat.halves) {
    words.scales = HalfAt(block, 2 * row);
  } else if constexpr (kFormat.head > 0) {
    words.scales = ByteOf(block, row);
    if constexpr (kFormat.has_min) words.scales |= ByteOf(block, kPanelRows + row) << 8;
  }
  return words;
}

// The scales of a row in one block, as floats. Names and formulas are those of BlockScales
// (panel_block.h). Integer scales that are multiplied into the codes are not here.
struct RowScales {
  float step;
  float min_step;
  float scale[2];  // if HasTwoProducts
  float min[2];    // if HasHalfMinimum
};

TIDEPOOL_DEVICE int SignedByte(uint32_t word, int i) {
  return static_cast<int8_t>(word >> (8 * i) & 255);
}

template <DType kType>
TIDEPOOL_DEVICE RowScales ScalesOf(const PanelWords& words) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  RowScales s = {};
  if constexpr (kType == DType::kMXFP4) {
    s.step = HalfOfE8M0(static_cast<uint8_t>(words.steps));
    return s;
  }
  s.step = F16Value(words.steps & 0xffff);
  if constexpr (kFormat.has_min) s.min_step = F16Value(words.steps >> 16);
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    s.step *= static_cast<float>(words.scales & 255);
    s.min_step *= -static_cast<float>(words.scales >> 8);
  } else if constexpr (kType == DType::kIQ4_XS) {
    s.step *= static_cast<float>(SignedByte(words.scales, 0));
  } else if constexpr (HasHalfMinimum(kType)) {
    s.min_step = -s.min_step;
    s.min[0] = static_cast<float>(words.scales >> 4 & 15);
    s.min[1] = static_cast<float>(words.scales >> 12 & 15);
  } else if constexpr (HasTwoProducts(kType)) {
    s.scale[0] = static_cast<float>(SignedByte(words.scales, 0));
    s.scale[1] = static_cast<float>(SignedByte(words.scales, 1));
  }
  return s;
}

inline constexpr uint32_t kOnes = 0x01010101;  // times a byte: this byte four times
inline constexpr uint32_t kSigns = 0x80808080;

// Returns four bytes of a table of 16 signed bytes as a word.
static constexpr uint32_t TableWord(const int8_t (&table)[16], int i) {
  uint32_t word = 0;
  for (int k = 0; k < 4; ++k) word |= uint32_t{static_cast<uint8_t>(table[4 * i + k])} << (8 * k);
  return word;
}

// Replaces nibbles by their table values. `low` gets those of low nibbles.
template <DType kType>
TIDEPOOL_DEVICE void LookUp(uint32_t nibbles, uint32_t* low, uint32_t* high) {
  constexpr const int8_t(&kTable)[16] = kType == DType::kMXFP4 ? kE2M1Doubled : kIq4Values;
  constexpr uint32_t kTable0 = TableWord(kTable, 0);
  constexpr uint32_t kTable1 = TableWord(kTable, 1);
  constexpr uint32_t kTable2 = TableWord(kTable, 2);
  constexpr uint32_t kTable3 = TableWord(kTable, 3);
  // A selector has four nibbles, each below 8. So there is a lookup in each half of the table, and
  // the third one chooses byte i of one of the two, by the highest bit of nibble i.
  const uint32_t index = nibbles & 0x77777777;
  const uint32_t choice = 0x32103210 | (nibbles & 0x88888888) >> 1;
  uint32_t values[2];
  for (int i = 0; i < 2; ++i) {
    const uint32_t selector = index >> (16 * i) & 0xffff;
    values[i] = BytePermute(BytePermute(kTable0, kTable1, selector),
                            BytePermute(kTable2, kTable3, selector), choice >> (16 * i) & 0xffff);
  }
  *low = BytePermute(values[0], values[1], 0x6420);
  *high = BytePermute(values[0], values[1], 0x7531);
}

// Subtracts the zero point from four codes below 128. No byte borrows from the next one, because
// 128 is added to each, and then removed without a carry.
template <int kZero>
TIDEPOOL_DEVICE uint32_t SubtractZero(uint32_t codes) {
  if constexpr (kZero == 0) return codes;
  return (codes + (128 - kZero) * kOnes) ^ kSigns;
}

// Returns -(code - 4) * scale for four codes, in the same way.
TIDEPOOL_DEVICE uint32_t FoldNegative(uint32_t codes, int scale) {
  const auto s = static_cast<uint32_t>(scale);
  return (codes * (0u - s) + kSigns + 4 * kOnes * s) ^ kSigns;
}

// Returns the four integers of the lane's columns in the low half of the block, and in the high
// half.
template <DType kType>
TIDEPOOL_DEVICE void UnpackPanelWords(const PanelWords& words, int lane, uint32_t* low,
                                      uint32_t* high) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int group = lane % 4;
  if constexpr (HasCodeTable(kType)) {
    LookUp<kType>(words.low, low, high);
    return;
  }
  if constexpr (kFormat.code_bits == 8) {
    *low = words.low;
    *high = words.high;
    return;
  }
  if constexpr (kFormat.code_bits == 4) {
    *low = words.low & 15 * kOnes;
    *high = words.low >> 4 & 15 * kOnes;
  } else {
    *low = words.low >> (group / 2 * 2) & 3 * kOnes;
    *high = words.low >> (group / 2 * 2 + 4) & 3 * kOnes;
  }
  if constexpr (kFormat.extra_bits == 1) {
    *low |= (words.extra >> group & kOnes) << kFormat.code_bits;
    *high |= (words.extra >> (group + 4) & kOnes) << kFormat.code_bits;
  } else if constexpr (kFormat.extra_bits == 2) {
    *low |= (words.extra >> (group / 2 * 2) & 3 * kOnes) << kFormat.code_bits;
    *high |= (words.extra >> (group / 2 * 2 + 4) & 3 * kOnes) << kFormat.code_bits;
  }
  if constexpr (kType == DType::kQ2_K) {
    *low *= words.scales & 15;
    *high *= words.scales >> 8 & 15;
  } else if constexpr (kType == DType::kQ3_K) {
    *low = FoldNegative(*low, SignedByte(words.scales, 0));
    *high = FoldNegative(*high, SignedByte(words.scales, 1));
  } else {
    *low = SubtractZero<kFormat.zero>(*low);
    *high = SubtractZero<kFormat.zero>(*high);
  }
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_WEIGHTS_CU_H_
