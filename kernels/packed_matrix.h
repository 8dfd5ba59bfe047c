// PackedMatrix: a weight matrix in the kernels' layout. It is stored as panels of 8 output rows,
// and has the same bytes on every CPU.
//
// Row r of panel p is output row 8p + r. Vector lanes hold the rows of a panel, never parts of the
// inner dimension, so each output is one chain of additions over ascending K on every ISA. If the
// last panel has fewer than 8 rows, the others are zero. panel.h defines the bytes of each type.
#ifndef TIDEPOOL_KERNELS_PACKED_MATRIX_H_
#define TIDEPOOL_KERNELS_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

inline constexpr int kPanelRows = 8;

// Packed weights [rows, cols] for y[rows] = W x[cols]. Does not own the memory.
struct PackedMatrix {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // PackedBytes(dtype, rows, cols) bytes, aligned to kAlignment
};

// Bytes of a packed matrix. Requires: cols is a multiple of BlockElements(dtype).
size_t PackedBytes(DType dtype, int64_t rows, int64_t cols);

// Packs `source`, which has rows of GGUF blocks [rows, cols], into `out`, which has
// PackedBytes(...) bytes. The weights do not change.
void Pack(DType dtype, int64_t rows, int64_t cols, const std::byte* source, std::byte* out);

// Returns one row as float32, dequantised exactly as GGUF defines. Requires: out.size() == cols.
void UnpackRow(const PackedMatrix& matrix, int64_t row, absl::Span<float> out);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_PACKED_MATRIX_H_
