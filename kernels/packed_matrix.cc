#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// Bytes of a 32-bit lane: the quants of one row in one group of a record.
constexpr int kLaneBytes = 4;

// Bytes ahead of a quantised record's quants.
int ScaleBytes(DType dtype) { return dtype == DType::kQ4_1 ? kQ4_1QuantOffset : kQ8QuantOffset; }

// One block of one row into, or out of, its places in a record.
void PackBlock(DType dtype, int row, const std::byte* block, std::byte* record) {
  if (BlockElements(dtype) == 1) {
    const int bytes = BlockBytes(dtype);
    std::memcpy(record + row * bytes, block, bytes);
    return;
  }
  const int scale_bytes = ScaleBytes(dtype);
  const int scales = scale_bytes / (2 * kPanelRows);
  for (int s = 0; s < scales; ++s) {
    std::memcpy(record + 2 * (s * kPanelRows + row), block + 2 * s, 2);
  }
  const std::byte* quants = block + 2 * scales;
  const int groups = (BlockBytes(dtype) - 2 * scales) / kLaneBytes;
  for (int g = 0; g < groups; ++g) {
    std::memcpy(record + scale_bytes + kLaneBytes * (g * kPanelRows + row), quants + kLaneBytes * g,
                kLaneBytes);
  }
}

template <typename T>
T Load(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

void UnpackQ8(const std::byte* record, int row, float* out) {
  const float d = F16ToF32(Load<uint16_t>(record + 2 * row));
  for (int k = 0; k < kQuantBlock; ++k) {
    const int at = kLaneBytes * (k / kLaneBytes * kPanelRows + row) + k % kLaneBytes;
    out[k] = d * static_cast<float>(Load<int8_t>(record + kQ8QuantOffset + at));
  }
}

void UnpackQ4(DType dtype, const std::byte* record, int row, float* out) {
  const float d = F16ToF32(Load<uint16_t>(record + 2 * row));
  const bool has_min = dtype == DType::kQ4_1;
  const float m = has_min ? F16ToF32(Load<uint16_t>(record + kPanelMinOffset + 2 * row)) : 0.0f;
  const std::byte* quants = record + ScaleBytes(dtype);
  for (int k = 0; k < kQuantBlock / 2; ++k) {
    const int at = kLaneBytes * (k / kLaneBytes * kPanelRows + row) + k % kLaneBytes;
    const int pair = Load<uint8_t>(quants + at);
    const int low = pair & 15;
    const int high = pair >> 4;
    out[k] = has_min ? d * low + m : d * (low - 8);
    out[k + kQuantBlock / 2] = has_min ? d * high + m : d * (high - 8);
  }
}

void UnpackRecord(DType dtype, const std::byte* record, int row, float* out) {
  switch (dtype) {
    case DType::kF32:
      *out = Load<float>(record + 4 * row);
      return;
    case DType::kF16:
      *out = F16ToF32(Load<uint16_t>(record + 2 * row));
      return;
    case DType::kBF16:
      *out = BF16ToF32(Load<uint16_t>(record + 2 * row));
      return;
    case DType::kQ8_0:
      UnpackQ8(record, row, out);
      return;
    case DType::kQ4_0:
    case DType::kQ4_1:
      UnpackQ4(dtype, record, row, out);
      return;
  }
}

}  // namespace

int PanelRecordBytes(DType dtype) { return kPanelRows * BlockBytes(dtype); }

int64_t PanelBytes(DType dtype, int64_t cols) {
  return cols / BlockElements(dtype) * PanelRecordBytes(dtype);
}

size_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  CHECK(rows >= 0 && cols >= 0 && cols % BlockElements(dtype) == 0)
      << "a " << DTypeName(dtype) << " matrix of " << rows << " x " << cols;
  return static_cast<size_t>(PanelCount(rows)) * PanelBytes(dtype, cols);
}

void Pack(DType dtype, int64_t rows, int64_t cols, const std::byte* source, std::byte* out) {
  const int64_t total = static_cast<int64_t>(PackedBytes(dtype, rows, cols));
  const int64_t blocks = cols / BlockElements(dtype);
  const int block_bytes = BlockBytes(dtype);
  const int record_bytes = PanelRecordBytes(dtype);
  const int64_t panel_bytes = blocks * record_bytes;
  if (rows % kPanelRows != 0) std::memset(out + total - panel_bytes, 0, panel_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* from = source + row * blocks * block_bytes;
    std::byte* to = out + row / kPanelRows * panel_bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      PackBlock(dtype, row % kPanelRows, from + b * block_bytes, to + b * record_bytes);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, absl::Span<float> out) {
  CHECK(row >= 0 && row < matrix.rows) << "row " << row << " of " << matrix.rows;
  CHECK_EQ(static_cast<int64_t>(out.size()), matrix.cols);
  const int elements = BlockElements(matrix.dtype);
  const std::byte* record = matrix.data + row / kPanelRows * PanelBytes(matrix.dtype, matrix.cols);
  for (int64_t k = 0; k < matrix.cols; k += elements) {
    UnpackRecord(matrix.dtype, record, row % kPanelRows, out.data() + k);
    record += PanelRecordBytes(matrix.dtype);
  }
}

}  // namespace tidepool::kernels
