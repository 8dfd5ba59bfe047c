#include "kernels/packed_matrix.h"

#include "kernels/base/check.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "kernels/panel_block.h"

namespace tidepool::kernels {
namespace {

template <DType kType>
void UnpackQuants(const std::byte* panel, int row, absl::Span<float> out) {
  for (size_t b = 0; b < out.size() / kQuantBlock; ++b) {
    const PanelBlock block = PanelBlock::At<kType>(panel, b);
    const BlockScales scales = ScalesAt<kType>(block, row);
    for (int k = 0; k < kQuantBlock; ++k) {
      out[b * kQuantBlock + k] = ValueAt<kType>(block, scales, row, k);
    }
  }
}

template <typename T, typename Convert>
void UnpackFloats(const std::byte* panel, int row, absl::Span<float> out, Convert convert) {
  for (size_t k = 0; k < out.size(); ++k) {
    T value;
    __builtin_memcpy(&value, panel + (k * kPanelRows + row) * sizeof(T), sizeof(T));
    out[k] = convert(value);
  }
}

}  // namespace

int64_t PanelBytes(DType dtype, int64_t cols) {
  return BlockCount(dtype, cols) * PanelRecordBytes(dtype);
}

size_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  CHECK(rows >= 0 && cols >= 0 && cols % BlockElements(dtype) == 0)
      << "a " << DTypeName(dtype) << " matrix of " << rows << " x " << cols;
  return static_cast<size_t>(PanelCount(rows)) * PanelBytes(dtype, cols);
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, absl::Span<float> out) {
  CHECK(row >= 0 && row < matrix.rows) << "row " << row << " of " << matrix.rows;
  CHECK_EQ(static_cast<int64_t>(out.size()), matrix.cols);
  const std::byte* panel = matrix.data + row / kPanelRows * PanelBytes(matrix.dtype, matrix.cols);
  const int lane = static_cast<int>(row % kPanelRows);
  switch (matrix.dtype) {
    case DType::kF32:
      return UnpackFloats<float>(panel, lane, out, [](float value) { return value; });
    case DType::kF16:
      return UnpackFloats<uint16_t>(panel, lane, out, F16ToF32);
    case DType::kBF16:
      return UnpackFloats<uint16_t>(panel, lane, out, BF16ToF32);
    default:
      return VisitQuantType(matrix.dtype,
                            [&](auto type) { UnpackQuants<type()>(panel, lane, out); });
  }
}

}  // namespace tidepool::kernels
