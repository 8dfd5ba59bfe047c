// The bytes of a PackedMatrix. Implementation detail of packing and of the kernels that read
// panels.
//
// A matrix is its panels, first to last; a panel is its records, in ascending order of columns; a
// record holds kPanelRows rows over BlockElements(dtype) columns in PanelRecordBytes(dtype) bytes,
// with nothing between. Little-endian. Row r below is row r of the panel, 0 <= r < 8.
//
//   F32         float  w[8]                 one column of the eight rows
//   F16, BF16   uint16 w[8]
//   Q8_0        f16    d[8]                 the blocks' scales
//               int8   q[8][8][4]           q[g][r][j] is column 4g + j of row r
//   Q4_0        f16    d[8]
//               uint8  q[4][8][4]           q[g][r][j]: low nibble is column 4g + j of row r,
//                                           high nibble column 16 + 4g + j
//   Q4_1        f16    d[8], m[8]           then q as in Q4_0
//
// So a 32-byte vector of quants holds four consecutive columns in each 32-bit lane, one lane per
// row: what multiply-add instructions over bytes (maddubs, dpbusd, sdot) sum into one lane. Two
// panels at once fill a 64-byte vector. Rows past the last have zero bytes, which every type reads
// as zero (their scales are zero).
#ifndef TIDEPOOL_KERNELS_PANEL_H_
#define TIDEPOOL_KERNELS_PANEL_H_

#include <cstdint>

#include "kernels/packed_matrix.h"

namespace tidepool::kernels {

// Columns of one quantised block, of weights and of activations alike.
inline constexpr int kQuantBlock = 32;

// Offsets within a record of a quantised type.
inline constexpr int kPanelMinOffset = 2 * kPanelRows;  // Q4_1's m
inline constexpr int kQ8QuantOffset = 2 * kPanelRows;
inline constexpr int kQ4_0QuantOffset = 2 * kPanelRows;
inline constexpr int kQ4_1QuantOffset = 4 * kPanelRows;

// Bytes of one record.
inline constexpr int kF32RecordBytes = 4 * kPanelRows;
inline constexpr int kF16RecordBytes = 2 * kPanelRows;
inline constexpr int kQ8_0RecordBytes = 34 * kPanelRows;
inline constexpr int kQ4_0RecordBytes = 18 * kPanelRows;
inline constexpr int kQ4_1RecordBytes = 20 * kPanelRows;

// Panels that cover `rows` rows.
static inline int64_t PanelCount(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

int PanelRecordBytes(DType dtype);

// Bytes from one panel to the next.
int64_t PanelBytes(DType dtype, int64_t cols);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_PANEL_H_
