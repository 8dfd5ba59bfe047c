// Packs one block of one row from GGUF's layout into a panel's record (panel.h defines both
// layouts). Implementation detail of Pack.
//
// Codes are moved as 32-bit words, four columns of one row at a time. Scales are moved unchanged.
#ifndef TIDEPOOL_KERNELS_PACK_BLOCK_H_
#define TIDEPOOL_KERNELS_PACK_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace tidepool::kernels {

static inline uint32_t WordAt(const std::byte* data, int index) {
  uint32_t word;
  __builtin_memcpy(&word, data + 4 * index, sizeof(word));
  return word;
}
static inline uint8_t U8At(const std::byte* data, int index) {
  return static_cast<uint8_t>(data[index]);
}

static inline uint64_t LongAt(const std::byte* data, int index) {
  uint64_t word;
  __builtin_memcpy(&word, data + 8 * index, sizeof(word));
  return word;
}

// One row's part of a record that is being packed.
template <DType kType>
class RecordLane {
 public:
  RecordLane(std::byte* record, int row) : record_(record), row_(row) {}

  // Copies the f16 at `source` to the scales of the record, at position `index` (0: d, 1: dmin or
  // m). The scales are in the record's head, or at the start of the record if it has no head.
  void SetF16(int index, const std::byte* source) {
    __builtin_memcpy(record_ + 2 * (index * kPanelRows + row_), source, 2);
  }
  // Sets a one-byte scale of this row. `index` selects one of the block's scales; each scale has
  // one byte for each of the eight rows.
  void SetByte(int block, int index, int value) {
    Block(block)[index * kPanelRows + row_] = static_cast<std::byte>(value);
  }
  // Sets both scales of this row in a block with one scale per half.
  void SetHalves(int block, int first, int second) {
    Block(block)[2 * row_] = static_cast<std::byte>(first);
    Block(block)[2 * row_ + 1] = static_cast<std::byte>(second);
  }
  // Set this row's word in vector `index` of a block's codes or extra bits. The functions with 64
  // bits set two consecutive vectors; the low half is the first.
  void SetCodes(int block, int index, uint32_t word) {
    SetWord(Block(block) + kFormat.codes() + index * kVectorBytes, word);
  }
  void SetTwoCodes(int block, int index, uint64_t words) {
    SetCodes(block, index, static_cast<uint32_t>(words));
    SetCodes(block, index + 1, static_cast<uint32_t>(words >> 32));
  }
  void SetExtra(int block, int index, uint32_t word) {
    SetWord(Block(block) + kFormat.extra() + index * kVectorBytes, word);
  }
  void SetTwoExtra(int block, uint64_t words) {
    SetExtra(block, 0, static_cast<uint32_t>(words));
    SetExtra(block, 1, static_cast<uint32_t>(words >> 32));
  }

 private:
  static constexpr QuantFormat kFormat = FormatOf(kType);

  std::byte* Block(int block) { return record_ + kFormat.head + block * kFormat.block_bytes(); }
  void SetWord(std::byte* vector, uint32_t word) {
    __builtin_memcpy(vector + 4 * row_, &word, sizeof(word));
  }

  std::byte* const record_;
  const int row_;
};

// Packs 16 bytes in which the low nibbles are columns 0 to 15 and the high nibbles are columns 16
// to 31. Panels have the same order.
template <typename Lane>
static inline void PackNibbles(const std::byte* codes, int block, Lane* lane) {
  for (int g = 0; g < 4; ++g) lane->SetCodes(block, g, WordAt(codes, g));
}

// Packs 32 bytes that have one nibble of each column of a block, at bit `shift`. A 64-bit word has
// two groups.
template <typename Lane>
static inline void PackNibblePlane(const std::byte* plane, int shift, int block, Lane* lane) {
  constexpr uint64_t kMask = 0x0f0f0f0f0f0f0f0f;
  for (int g = 0; g < 4; g += 2) {
    const uint64_t low = LongAt(plane, g / 2) >> shift & kMask;
    const uint64_t high = LongAt(plane, g / 2 + 2) >> shift & kMask;
    lane->SetTwoCodes(block, g, low | high << 4);
  }
}

// `plane` has 32 bytes, one per column. Takes the two bits at bit `shift` of each byte, and returns
// them in the order in which panels store pairs. The even groups are in the low half of the result,
// and the odd ones in the high half.
static inline uint64_t GatherPairs(const std::byte* plane, int shift) {
  constexpr uint64_t kMask = 0x0303030303030303;
  return (LongAt(plane, 0) >> shift & kMask) | (LongAt(plane, 1) >> shift & kMask) << 2 |
         (LongAt(plane, 2) >> shift & kMask) << 4 | (LongAt(plane, 3) >> shift & kMask) << 6;
}

// `plane` has 32 bytes, one per column. Takes the bit at bit `shift` of each byte, and returns the
// bits in the order in which panels store them.
static inline uint32_t GatherBits(const std::byte* plane, int shift) {
  constexpr uint64_t kMask = 0x0101010101010101;
  const uint64_t words =
      (LongAt(plane, 0) >> shift & kMask) | (LongAt(plane, 1) >> shift & kMask) << 2 |
      (LongAt(plane, 2) >> shift & kMask) << 4 | (LongAt(plane, 3) >> shift & kMask) << 6;
  // interleave the odd groups with the even ones
  return static_cast<uint32_t>(words | words >> 31);
}

// Reorders the bits of columns 0 to 31 into the order of the bits in panels.
static inline uint32_t SpreadBits(uint32_t bits) {
  // Byte j of the result gets the bits j, j + 4, j + 8 ...: this transposes a matrix of 4 columns
  // by 8 groups.
  uint32_t word = 0;
  for (int g = 0; g < 8; ++g) {
    const uint32_t four = bits >> (4 * g) & 15;
    word |= (four * 0x00204081 & 0x01010101) << g;  // moves bit j of the four to bit 8j
  }
  return word;
}

// Packs the six-bit scales and minima of all sub-blocks of Q4_K and Q5_K.
template <typename Lane>
static inline void PackKScales(const std::byte* scales, Lane* lane) {
  for (int b = 0; b < 8; ++b) {
    const int at = b % 4;
    const int low = U8At(scales, at);
    const int mid = U8At(scales, 4 + at);
    const int top = U8At(scales, 8 + at);
    lane->SetByte(b, 0, b < 4 ? low & 63 : (top & 15) | low >> 6 << 4);
    lane->SetByte(b, 1, b < 4 ? mid & 63 : top >> 4 | mid >> 6 << 4);
  }
}

template <typename Lane>
static inline void PackQ2_K(const std::byte* in, Lane* lane) {
  lane->SetF16(0, in + 80);
  lane->SetF16(1, in + 82);
  for (int b = 0; b < 8; ++b) {
    lane->SetHalves(b, U8At(in, 2 * b), U8At(in, 2 * b + 1));
    const std::byte* plane = in + 16 + 32 * (b / 4);
    lane->SetTwoCodes(b, 0, GatherPairs(plane, 2 * (b % 4)));
  }
}

// Returns scale k of Q3_K. The low four bits are in the first 8 bytes, and the high two bits are in
// the last 4 bytes.
static inline int Q3Scale(const std::byte* scales, int k) {
  const int low = k < 8 ? U8At(scales, k) & 15 : U8At(scales, k - 8) >> 4;
  const int high = U8At(scales, 8 + k % 4) >> (2 * (k / 4)) & 3;
  return (low | high << 4) - 32;
}

template <typename Lane>
static inline void PackQ3_K(const std::byte* in, Lane* lane) {
  const std::byte* scales = in + 96;
  lane->SetF16(0, in + 108);
  for (int b = 0; b < 8; ++b) {
    lane->SetHalves(b, Q3Scale(scales, 2 * b), Q3Scale(scales, 2 * b + 1));
    lane->SetExtra(b, 0, GatherBits(in, b));
    const std::byte* plane = in + 32 + 32 * (b / 4);
    lane->SetTwoCodes(b, 0, GatherPairs(plane, 2 * (b % 4)));
  }
}

template <typename Lane>
static inline void PackQ4_K(const std::byte* in, Lane* lane) {
  lane->SetF16(0, in);
  lane->SetF16(1, in + 2);
  PackKScales(in + 4, lane);
  for (int b = 0; b < 8; ++b) PackNibblePlane(in + 16 + 32 * (b / 2), 4 * (b % 2), b, lane);
}

template <typename Lane>
static inline void PackQ5_K(const std::byte* in, Lane* lane) {
  lane->SetF16(0, in);
  lane->SetF16(1, in + 2);
  PackKScales(in + 4, lane);
  for (int b = 0; b < 8; ++b) {
    lane->SetExtra(b, 0, GatherBits(in + 16, b));
    PackNibblePlane(in + 48 + 32 * (b / 2), 4 * (b % 2), b, lane);
  }
}

template <typename Lane>
static inline void PackQ6_K(const std::byte* in, Lane* lane) {
  lane->SetF16(0, in + 208);
  for (int b = 0; b < 8; ++b) {
    const int n = b / 4;
    const int g = b % 4;
    lane->SetHalves(b, U8At(in, 192 + 2 * b), U8At(in, 192 + 2 * b + 1));
    lane->SetTwoExtra(b, GatherPairs(in + 128 + 32 * n, 2 * g));
    PackNibblePlane(in + 64 * n + 32 * (g & 1), g < 2 ? 0 : 4, b, lane);
  }
}

template <typename Lane>
static inline void PackIQ4_XS(const std::byte* in, Lane* lane) {
  const int high = U8At(in, 2) | U8At(in, 3) << 8;
  lane->SetF16(0, in);
  for (int b = 0; b < 8; ++b) {
    const int low = U8At(in, 4 + b / 2) >> (4 * (b % 2)) & 15;
    lane->SetByte(b, 0, (low | (high >> (2 * b) & 3) << 4) - 32);
    PackNibbles(in + 8 + 16 * b, b, lane);
  }
}

// Packs a block of 32 columns: its f16 scales, the extra bits and the codes.
template <DType kType>
static inline void PackFlat(const std::byte* in, RecordLane<kType>* lane) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kType == DType::kMXFP4) {
    lane->SetByte(0, 0, U8At(in, 0));
    return PackNibbles(in + 1, 0, lane);
  }
  constexpr int kScales = kFormat.has_min ? 2 : 1;
  for (int s = 0; s < kScales; ++s) lane->SetF16(s, in + 2 * s);
  const std::byte* codes = in + 2 * kScales;
  if constexpr (kFormat.extra_bits == 1) {
    lane->SetExtra(0, 0, SpreadBits(WordAt(codes, 0)));
    codes += 4;
  }
  if constexpr (kFormat.code_bits == 4) return PackNibbles(codes, 0, lane);
  for (int g = 0; g < 8; ++g) lane->SetCodes(0, g, WordAt(codes, g));
}

template <DType kType>
static inline void PackBlock(const std::byte* in, int row, std::byte* record) {
  RecordLane<kType> lane(record, row);
  if constexpr (kType == DType::kQ2_K) {
    PackQ2_K(in, &lane);
  } else if constexpr (kType == DType::kQ3_K) {
    PackQ3_K(in, &lane);
  } else if constexpr (kType == DType::kQ4_K) {
    PackQ4_K(in, &lane);
  } else if constexpr (kType == DType::kQ5_K) {
    PackQ5_K(in, &lane);
  } else if constexpr (kType == DType::kQ6_K) {
    PackQ6_K(in, &lane);
  } else if constexpr (kType == DType::kIQ4_XS) {
    PackIQ4_XS(in, &lane);
  } else {
    PackFlat<kType>(in, &lane);
  }
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_PACK_BLOCK_H_
