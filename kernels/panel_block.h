// Reads single numbers of quantised panels, as panel.h defines them. This is for code that may be
// slow. The vector code in cpu/ must give the same results.
#ifndef TIDEPOOL_KERNELS_PANEL_BLOCK_H_
#define TIDEPOOL_KERNELS_PANEL_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/code_tables.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

// The position of one block of 32 columns of a panel, and of the record that contains it.
struct PanelBlock {
  const std::byte* record;
  const std::byte* block;

  // Returns the position of block b. Blocks are counted over the whole panel.
  template <DType kType>
  static constexpr PanelBlock At(const std::byte* panel, int64_t b) {
    constexpr QuantFormat kFormat = FormatOf(kType);
    const std::byte* record = panel + b / kFormat.blocks * kFormat.record_bytes();
    return {record, record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes()};
  }
};

// The scales of one row in a block. The value of column k is (step * scale[h]) * q[k], where q[k]
// is its integer and h = k / 16. If the type has a minimum, min_step * min[h] is added.
struct BlockScales {
  float step = 0;
  int scale[2] = {1, 1};
  float min_step = 0;
  int min[2] = {1, 1};
};

static constexpr int ByteAt(const std::byte* data, int index) {
  return static_cast<int>(data[index]);
}
static constexpr int SignedByteAt(const std::byte* data, int index) {
  return static_cast<int8_t>(data[index]);
}
static constexpr float F16At(const std::byte* data, int index) {
  const int half = ByteAt(data, 2 * index) | ByteAt(data, 2 * index + 1) << 8;
  return F16ToF32(static_cast<uint16_t>(half));
}

// Products of d with an integer scale are exact, because d has 11 bits and the scale has at most 8.
template <DType kType>
static constexpr BlockScales ScalesAt(const PanelBlock& at, int row) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  // scales d, and after them dmin or m
  const std::byte* halves = kFormat.head > 0 ? at.record : at.block;
  BlockScales s;
  if constexpr (kType == DType::kMXFP4) {
    s.step = HalfOfE8M0(static_cast<uint8_t>(at.block[row]));
    return s;
  }
  s.step = F16At(halves, row);
  if constexpr (kFormat.has_min) s.min_step = F16At(halves, kPanelRows + row);
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    s.step *= static_cast<float>(ByteAt(at.block, row));
    s.min_step *= -static_cast<float>(ByteAt(at.block, kPanelRows + row));
  } else if constexpr (kType == DType::kIQ4_XS) {
    s.step *= static_cast<float>(SignedByteAt(at.block, row));
  } else if constexpr (kFormat.halves) {
    s.min_step = -s.min_step;
    for (int h = 0; h < 2; ++h) {
      const int both = ByteAt(at.block, 2 * row + h);
      s.scale[h] = kFormat.has_min ? both & 15 : SignedByteAt(at.block, 2 * row + h);
      s.min[h] = both >> 4;
    }
  }
  return s;
}

// Returns the table value of a code. GPU code cannot index arrays at namespace scope, so the table
// is two 64-bit words.
template <DType kType>
static constexpr int ValueOfCode(int code) {
  constexpr CodeWords kWords = kType == DType::kMXFP4 ? WordsOf(kE2M1Doubled) : WordsOf(kIq4Values);
  return static_cast<int8_t>((code < 8 ? kWords.low : kWords.high) >> (8 * (code & 7)));
}

// Returns the integer of column k < 32 of a row: the code minus the zero point, or the code's table
// value.
template <DType kType>
static constexpr int QuantAt(const PanelBlock& at, int row, int k) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int group = k / 4;
  const int lane = 4 * row + k % 4;
  const std::byte* codes = at.block + kFormat.codes();
  const std::byte* extra = at.block + kFormat.extra();
  if constexpr (kFormat.code_bits == 8) return SignedByteAt(codes, group * kVectorBytes + lane);
  int code;
  if constexpr (kFormat.code_bits == 4) {
    code = ByteAt(codes, group % 4 * kVectorBytes + lane) >> (group < 4 ? 0 : 4) & 15;
  } else {
    code = ByteAt(codes, group % 2 * kVectorBytes + lane) >> (2 * (group / 2)) & 3;
  }
  if constexpr (kFormat.extra_bits == 1) {
    code |= (ByteAt(extra, lane) >> group & 1) << kFormat.code_bits;
  } else if constexpr (kFormat.extra_bits == 2) {
    code |= (ByteAt(extra, group % 2 * kVectorBytes + lane) >> (2 * (group / 2)) & 3)
            << kFormat.code_bits;
  }
  if constexpr (HasCodeTable(kType)) return ValueOfCode<kType>(code);
  return code - kFormat.zero;
}

// Returns column k of the block, dequantised exactly as GGUF defines.
template <DType kType>
static constexpr float ValueAt(const PanelBlock& at, const BlockScales& scales, int row, int k) {
  const int half = k / kHalfBlock;
  const float scaled = scales.step * static_cast<float>(scales.scale[half]) *
                       static_cast<float>(QuantAt<kType>(at, row, k));
  if constexpr (!FormatOf(kType).has_min) return scaled;  // adding 0 would turn -0 into +0
  return scaled + scales.min_step * static_cast<float>(scales.min[half]);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_PANEL_BLOCK_H_
