// Quantised weights as fragments of Mma32 and Mma16. panel.h defines the bytes.
//
// Panels and fragments have the same order of rows and of groups of four columns. Lane l holds row
// l / 4 of the panel. Of this row, it holds group l % 4 (in the low half of the block) and group 4
// + l % 4 (in the high half). So a warp reads a block of a panel as 128 adjacent bytes, and no
// weight passes through shared memory.
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

// The scales of a row in one block, as they are stored.
struct ScaleWords {
  uint32_t steps;   // d, and m or dmin in the high 16 bits; or the exponent e
  uint32_t scales;  // integer scales: sc and mn, sc[0] and sc[1], or sm[0] and sm[1]
};

// Loads the scales of a row. `record` and `block` point to the record and the block in the row's
// panel.
template <DType kType>
TIDEPOOL_DEVICE ScaleWords LoadRowScales(const std::byte* record, const std::byte* block, int row) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  ScaleWords words = {};
  if constexpr (kType == DType::kMXFP4) {
    words.steps = LoadConstant8(block + row);
    return words;
  }
  const std::byte* steps = kFormat.head > 0 ? record : block;
  words.steps = LoadConstant16(steps + 2 * row);
  if constexpr (kFormat.has_min) {
    words.steps |= LoadConstant16(steps + 2 * (kPanelRows + row)) << 16;
  }
  if constexpr (kFormat.halves) {
    words.scales = LoadConstant16(block + 2 * row);
  } else if constexpr (kFormat.head > 0) {
    words.scales = LoadConstant8(block + row);
    if constexpr (kFormat.has_min) words.scales |= LoadConstant8(block + kPanelRows + row) << 8;
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
TIDEPOOL_DEVICE RowScales LaneScalesOf(const ScaleWords& words) {
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
  }
  return s;
}

// Returns the scales of lane i of the quad. `mine` are the scales of this lane, and `scales` are
// the integer scales of lane i.
template <DType kType>
TIDEPOOL_DEVICE RowScales ScalesOfLane(const RowScales& mine, uint32_t scales, int i) {
  RowScales s = {};
  s.step = ShuffleQuad(mine.step, i);
  if constexpr (FormatOf(kType).has_min) s.min_step = ShuffleQuad(mine.min_step, i);
  if constexpr (HasHalfMinimum(kType)) {
    s.min[0] = static_cast<float>(scales >> 4 & 15);
    s.min[1] = static_cast<float>(scales >> 12 & 15);
  } else if constexpr (HasTwoProducts(kType)) {
    s.scale[0] = static_cast<float>(SignedByte(scales, 0));
    s.scale[1] = static_cast<float>(SignedByte(scales, 1));
  }
  return s;
}

inline constexpr uint32_t kOnes = 0x01010101;  // times a byte: this byte four times
inline constexpr uint32_t kSigns = 0x80808080;

// Returns bytes 4i to 4i + 3 of the type's code table as a word.
template <DType kType>
static constexpr uint32_t TableWord(int i) {
  uint32_t word = 0;
  for (int k = 4 * i; k < 4 * i + 4; ++k) {
    const int8_t value = kType == DType::kMXFP4 ? kE2M1Doubled[k] : kIq4Values[k];
    word |= uint32_t{static_cast<uint8_t>(value)} << (k % 4 * 8);
  }
  return word;
}

// Replaces nibbles by their table values. `low` gets the values of low nibbles, and `high` those of
// high nibbles.
template <DType kType>
TIDEPOOL_DEVICE void LookUpNibbles(uint32_t nibbles, uint32_t* low, uint32_t* high) {
  constexpr uint32_t kTable0 = TableWord<kType>(0);
  constexpr uint32_t kTable1 = TableWord<kType>(1);
  constexpr uint32_t kTable2 = TableWord<kType>(2);
  constexpr uint32_t kTable3 = TableWord<kType>(3);
  // A selector has four nibbles, each below 8, so one BytePermute reads only half of the table. Two
  // calls look up each nibble in both halves. A third call takes byte i from one of the two
  // results, as the highest bit of nibble i selects.
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

// The words of one lane for one row of a panel's block.
struct LaneCodes {
  uint32_t low;    // codes: of the low half, or of both halves
  uint32_t high;   // codes of the high half, if codes are bytes
  uint32_t extra;  // more bits of the codes
};

// Returns the four integers of the lane's columns in the low half of the block, and in the high
// half. `scales` are the integer scales of the row.
template <DType kType>
TIDEPOOL_DEVICE void UnpackLane(const LaneCodes& words, uint32_t scales, int lane, uint32_t* low,
                                uint32_t* high) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int group = lane % 4;
  if constexpr (HasCodeTable(kType)) {
    LookUpNibbles<kType>(words.low, low, high);
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
    *low *= scales & 15;
    *high *= scales >> 8 & 15;
  } else if constexpr (kType == DType::kQ3_K) {
    *low = FoldNegative(*low, SignedByte(scales, 0));
    *high = FoldNegative(*high, SignedByte(scales, 1));
  } else {
    *low = SubtractZero<kFormat.zero>(*low);
    *high = SubtractZero<kFormat.zero>(*high);
  }
}

// The words of one lane for one block of the warp's panels.
template <DType kType, int kFragments>
struct WeightWords {
  LaneCodes codes[2 * kFragments];
  ScaleWords scales;
  uint32_t bits;
};

// Loads the weights of a warp, which are 2 or 4 panels. With two matrices, half of the panels are
// of the first one.
//
// Each lane loads its own words of codes. The four lanes of a row (a quad) need the same scales and
// the same words of single extra bits. Lane 4 r + p loads those of row r of panel p for the whole
// quad.
template <DType kType, int kFragments, int kMatrices>
class WeightLoader {
 public:
  static constexpr QuantFormat kFormat = FormatOf(kType);
  static constexpr int kPanels = 2 * kFragments;
  using Words = WeightWords<kType, kFragments>;

  // Instead of panels after the last one, the last one is loaded. The results of these panels must
  // not be stored.
  TIDEPOOL_DEVICE WeightLoader(const std::byte* first, const std::byte* second, int64_t panel_bytes,
                               int first_output, int outputs)
      : lane_(LaneIndex()) {
    const int last = (outputs - 1) / kPanelRows;
    const auto panel = [&](int p) {
      const int number = first_output / kPanelRows + p % (kPanels / kMatrices);
      return (p < kPanels / kMatrices ? first : second) +
             (number < last ? number : last) * panel_bytes;
    };
    const int row = lane_ / 4;
    const int group = lane_ % 4;
    // in pairs, two groups share the words of a vector
    const int pair = (group % 2 * kPanelRows + row) * 4;
    const int codes = kFormat.code_bits == 2 ? pair : (group * kPanelRows + row) * 4;
    to_extra_ = kFormat.extra() + pair - kFormat.codes() - codes;
    TIDEPOOL_UNROLL
    for (int p = 0; p < kPanels; ++p) codes_[p] = panel(p) + kFormat.codes() + codes;
    scales_ = panel(lane_ % kPanels);
  }

  TIDEPOOL_DEVICE void Load(int block, Words* words) const {
    const int record = block / kFormat.blocks * kFormat.record_bytes();
    const int at = record + kFormat.head + block % kFormat.blocks * kFormat.block_bytes();
    TIDEPOOL_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      LaneCodes& codes = words->codes[p];
      codes.low = LoadConstant32(codes_[p] + at);
      if constexpr (kFormat.code_bits == 8) {
        codes.high = LoadConstant32(codes_[p] + at + 4 * kVectorBytes);
      }
      if constexpr (kFormat.extra_bits == 2) {
        codes.extra = LoadConstant32(codes_[p] + at + to_extra_);
      }
    }
    const int row = lane_ / 4;
    words->scales = LoadRowScales<kType>(scales_ + record, scales_ + at, row);
    if constexpr (kFormat.extra_bits == 1) {
      words->bits = LoadConstant32(scales_ + at + kFormat.extra() + 4 * row);
    }
  }

  // Unpacks a block to fragments A.
  TIDEPOOL_DEVICE void Unpack(const Words& words, uint32_t (&a)[kFragments][4],
                              RowScales (&scales)[kFragments][2]) const {
    constexpr bool kIntegers =
        HasFoldedScales(kType) || HasHalfMinimum(kType) || HasTwoProducts(kType);
    const RowScales mine = LaneScalesOf<kType>(words.scales);
    TIDEPOOL_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      LaneCodes codes = words.codes[p];
      uint32_t integers = 0;
      if constexpr (kIntegers) integers = ShuffleQuad(words.scales.scales, p);
      if constexpr (kFormat.extra_bits == 1) codes.extra = ShuffleQuad(words.bits, p);
      scales[p / 2][p % 2] = ScalesOfLane<kType>(mine, integers, p);
      UnpackLane<kType>(codes, integers, lane_, &a[p / 2][p % 2], &a[p / 2][p % 2 + 2]);
    }
  }

 private:
  const std::byte* codes_[kPanels];  // the lane's codes in block 0 of each panel
  int to_extra_;                     // bytes from codes_[p] to the lane's pairs of extra bits
  const std::byte* scales_;          // start of the panel whose scales the lane loads
  int lane_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_WEIGHTS_CU_H_
