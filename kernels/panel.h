// The byte layout of a PackedMatrix. Implementation detail of packing and of the kernels that read
// panels.
//
// A matrix is a sequence of panels. A panel is a sequence of records, in ascending order of
// columns. A record holds kPanelRows rows of BlockElements(dtype) columns in
// PanelRecordBytes(dtype) bytes. There is no padding. Numbers are little-endian. Below, row r is a
// row of the panel, 0 <= r < 8.
//
//   F32         float  w[8]                 one column of the eight rows
//   F16, BF16   uint16 w[8]
//
// Quantised types have blocks of 32 columns. A record of 256 columns has a head, followed by eight
// blocks. Group g of a block is the columns 4g to 4g + 3, and j is the column's number in its
// group, 0 to 3. The codes can be stored in these ways:
//
//   bytes    int8  q[8][8][4]   q[g][r][j] is column 4g + j of row r
//   nibbles  uint8 q[4][8][4]   q[g][r][j]: low nibble is column 4g + j of row r, high nibble
//                               column 16 + 4g + j
//   pairs    uint8 q[2][8][4]   group g is in q[g % 2], in the two bits from 2 * (g / 2) up
//   bit      uint8 h[8][4]      bit g of h[r][j] is one more bit of column 4g + j of row r
//   two bits uint8 h[2][8][4]   the same as pairs, two more bits
//
//   Q8_0     f16 d[8]; bytes                              weight: d q
//   Q4_0     f16 d[8]; nibbles                            d (q - 8)
//   Q4_1     f16 d[8], m[8]; nibbles                      d q + m
//   Q5_0     f16 d[8]; bit; nibbles                       d (q - 16)
//   Q5_1     f16 d[8], m[8]; bit; nibbles                 d q + m
//   IQ4_NL   f16 d[8]; nibbles                            d kIq4Values[q]
//   MXFP4    uint8 e[8]; nibbles                          2^(e - 128) kE2M1Doubled[q]
//   Q4_K     f16 d[8], dmin[8];
//            8 x { uint8 sc[8], mn[8]; nibbles }          d sc q - dmin mn
//   Q5_K     f16 d[8], dmin[8];
//            8 x { uint8 sc[8], mn[8]; bit; nibbles }     d sc q - dmin mn
//   IQ4_XS   f16 d[8]; 8 x { int8 sc[8]; nibbles }        d sc kIq4Values[q]
//   Q6_K     f16 d[8];
//            8 x { int8 sc[8][2]; two bits; nibbles }     d sc[half] (q - 32)
//   Q3_K     f16 d[8]; 8 x { int8 sc[8][2]; bit; pairs }  d sc[half] (q - 4)
//   Q2_K     f16 d[8], dmin[8];
//            8 x { uint8 sm[8][2]; pairs }        d (sm[half] & 15) q - dmin (sm[half] >> 4)
//
// Half 0 of a block is columns 0 to 15, and half 1 is columns 16 to 31. The six-bit scales of Q4_K,
// Q5_K, Q3_K and IQ4_XS are stored as bytes, which costs 1.2 to 3.6 % more memory. From signed
// scales, 32 is already subtracted.
//
// So a 32-byte vector of quants has one 32-bit lane per row, with four consecutive columns in each
// lane. Multiply-add instructions for bytes (maddubs, dpbusd, sdot) sum the products of such four
// bytes into one lane. Two panels together fill a 64-byte vector. Rows after the matrix's last row
// have only zero bytes. Every type reads these as zero, because the scales or the codes are zero.
#ifndef TIDEPOOL_KERNELS_PANEL_H_
#define TIDEPOOL_KERNELS_PANEL_H_

#include <cstdint>
#include <type_traits>

#include "kernels/packed_matrix.h"

namespace tidepool::kernels {

// Number of columns of one quantised block, for weights and activations.
inline constexpr int kQuantBlock = 32;
inline constexpr int kHalfBlock = kQuantBlock / 2;

// The size of a vector of four bytes per row. Codes and extra bits consist of such vectors.
inline constexpr int kVectorBytes = 4 * kPanelRows;

// The layout of a quantised type's record. Offsets and sizes are in bytes.
struct QuantFormat {
  int blocks = 1;        // number of 32-column blocks in a record
  int head = 0;          // bytes before the blocks: f16 d[8], and f16 dmin[8] if has_min
  int scales = 0;        // bytes of scales at the start of each block
  int code_bits = 4;     // bits of a code: 8 (bytes), 4 (nibbles) or 2 (pairs)
  int extra_bits = 0;    // 1 or 2 more bits of a code; stored between scales and codes
  int zero = 0;          // zero point, which is subtracted from an unsigned code
  bool has_min = false;  // a second scale (m, or dmin mn) is added to the product
  bool halves = false;   // each half of a block has its own integer scale

  constexpr int extra() const { return scales; }
  constexpr int codes() const { return scales + extra_bits * kVectorBytes; }
  constexpr int block_bytes() const { return codes() + code_bits * kVectorBytes; }
  constexpr int record_bytes() const { return head + blocks * block_bytes(); }
};

// Requires: `dtype` is a quantised type.
static constexpr QuantFormat FormatOf(DType dtype) {
  constexpr int kByte = kPanelRows;      // one byte per row
  constexpr int kHalf = 2 * kPanelRows;  // one f16, or two bytes, per row
  switch (dtype) {
    case DType::kQ8_0:
      return {.scales = kHalf, .code_bits = 8};
    case DType::kQ4_0:
      return {.scales = kHalf, .zero = 8};
    case DType::kQ4_1:
      return {.scales = 2 * kHalf, .has_min = true};
    case DType::kQ5_0:
      return {.scales = kHalf, .extra_bits = 1, .zero = 16};
    case DType::kQ5_1:
      return {.scales = 2 * kHalf, .extra_bits = 1, .has_min = true};
    case DType::kIQ4_NL:
      return {.scales = kHalf};
    case DType::kMXFP4:
      return {.scales = kByte};
    case DType::kQ4_K:
      return {.blocks = 8, .head = 2 * kHalf, .scales = 2 * kByte, .has_min = true};
    case DType::kQ5_K:
      return {
          .blocks = 8, .head = 2 * kHalf, .scales = 2 * kByte, .extra_bits = 1, .has_min = true};
    case DType::kIQ4_XS:
      return {.blocks = 8, .head = kHalf, .scales = kByte};
    case DType::kQ6_K:
      return {
          .blocks = 8, .head = kHalf, .scales = kHalf, .extra_bits = 2, .zero = 32, .halves = true};
    case DType::kQ3_K:
      return {.blocks = 8,
              .head = kHalf,
              .scales = kHalf,
              .code_bits = 2,
              .extra_bits = 1,
              .zero = 4,
              .halves = true};
    case DType::kQ2_K:
      return {.blocks = 8,
              .head = 2 * kHalf,
              .scales = kHalf,
              .code_bits = 2,
              .has_min = true,
              .halves = true};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return {};
}

// Returns whether codes are indices into a table and not numbers.
static constexpr bool HasCodeTable(DType dtype) {
  return dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS || dtype == DType::kMXFP4;
}

template <DType kType>
using TypeConstant = std::integral_constant<DType, kType>;

// Selects, at run time, the code that was compiled for a quantised type: calls
// visit(TypeConstant<dtype>()). Requires: `dtype` is a quantised type.
template <typename Visit>
static inline auto VisitQuantType(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kQ8_0:
      return visit(TypeConstant<DType::kQ8_0>());
    case DType::kQ4_0:
      return visit(TypeConstant<DType::kQ4_0>());
    case DType::kQ4_1:
      return visit(TypeConstant<DType::kQ4_1>());
    case DType::kQ5_0:
      return visit(TypeConstant<DType::kQ5_0>());
    case DType::kQ5_1:
      return visit(TypeConstant<DType::kQ5_1>());
    case DType::kQ2_K:
      return visit(TypeConstant<DType::kQ2_K>());
    case DType::kQ3_K:
      return visit(TypeConstant<DType::kQ3_K>());
    case DType::kQ4_K:
      return visit(TypeConstant<DType::kQ4_K>());
    case DType::kQ5_K:
      return visit(TypeConstant<DType::kQ5_K>());
    case DType::kQ6_K:
      return visit(TypeConstant<DType::kQ6_K>());
    case DType::kIQ4_NL:
      return visit(TypeConstant<DType::kIQ4_NL>());
    case DType::kIQ4_XS:
      return visit(TypeConstant<DType::kIQ4_XS>());
    case DType::kMXFP4:
      return visit(TypeConstant<DType::kMXFP4>());
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  __builtin_unreachable();
}

// Number of panels for `rows` rows.
static constexpr int64_t PanelCount(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

static constexpr int PanelRecordBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4 * kPanelRows;
    case DType::kF16:
    case DType::kBF16:
      return 2 * kPanelRows;
    default:
      return FormatOf(dtype).record_bytes();
  }
}

// Number of bytes from the start of a panel to the start of the next one.
int64_t PanelBytes(DType dtype, int64_t cols);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_PANEL_H_
