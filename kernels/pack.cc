// Pack writes one panel after the other. The output is written in order, while eight rows of the
// source are read side by side.
#include <algorithm>
#include <cstring>

#include "kernels/pack_block.h"
#include "kernels/packed_matrix.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// A vector of sixteen bytes. GCC and Clang vectorise it on any architecture.
template <typename T>
struct Vector {
  static constexpr int kLanes = 16 / sizeof(T);
  typedef T Type __attribute__((vector_size(16)));
  static Type Load(const std::byte* data) {
    Type v;
    __builtin_memcpy(&v, data, sizeof(v));
    return v;
  }
  static void Store(Type v, std::byte* data) { __builtin_memcpy(data, &v, sizeof(v)); }
};

using Words = Vector<uint32_t>;
using Halves = Vector<uint16_t>;

// These functions interleave two vectors, a0 b0 a1 b1 ...: the lower lanes, or the upper lanes.
Words::Type ZipLow(Words::Type a, Words::Type b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
Words::Type ZipHigh(Words::Type a, Words::Type b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
Halves::Type ZipLow(Halves::Type a, Halves::Type b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Halves::Type ZipHigh(Halves::Type a, Halves::Type b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Transposes a square of kLanes rows and columns whose rows are `stride` bytes apart, and writes
// rows of kPanelRows elements. A transpose is made by zipping row i with row i + kLanes / 2,
// log2(kLanes) times.
template <typename V>
void TransposeSquare(const std::byte* source, int64_t stride, std::byte* out) {
  constexpr int kN = V::kLanes;
  constexpr int kOutStride = kPanelRows * 16 / kN;
  typename V::Type rows[kN];
  for (int i = 0; i < kN; ++i) rows[i] = V::Load(source + i * stride);
  for (int round = 1; round < kN; round *= 2) {
    typename V::Type zipped[kN];
    for (int i = 0; i < kN / 2; ++i) {
      zipped[2 * i] = ZipLow(rows[i], rows[i + kN / 2]);
      zipped[2 * i + 1] = ZipHigh(rows[i], rows[i + kN / 2]);
    }
    std::copy_n(zipped, kN, rows);
  }
  for (int i = 0; i < kN; ++i) V::Store(rows[i], out + i * kOutStride);
}

// Packs `rows` rows of a panel whose elements have the type T. The other rows of the panel are
// already zero.
template <typename T>
void PackFloats(int rows, int64_t cols, const std::byte* source, std::byte* panel) {
  using V = Vector<T>;
  const int64_t stride = cols * static_cast<int64_t>(sizeof(T));
  int64_t k = 0;
  if (rows == kPanelRows) {
    for (; k + V::kLanes <= cols; k += V::kLanes) {
      for (int row = 0; row < kPanelRows; row += V::kLanes) {
        TransposeSquare<V>(source + row * stride + k * sizeof(T), stride,
                           panel + (k * kPanelRows + row) * sizeof(T));
      }
    }
  }
  for (; k < cols; ++k) {
    for (int row = 0; row < rows; ++row) {
      std::memcpy(panel + (k * kPanelRows + row) * sizeof(T), source + row * stride + k * sizeof(T),
                  sizeof(T));
    }
  }
}

template <DType kType>
void PackQuants(int rows, int64_t blocks, const std::byte* source, std::byte* panel) {
  constexpr int kRecordBytes = FormatOf(kType).record_bytes();
  const int block_bytes = BlockBytes(kType);
  const int64_t stride = blocks * block_bytes;
  for (int64_t b = 0; b < blocks; ++b) {
    for (int row = 0; row < rows; ++row) {
      PackBlock<kType>(source + row * stride + b * block_bytes, row, panel + b * kRecordBytes);
    }
  }
}

void PackPanel(DType dtype, int rows, int64_t cols, const std::byte* source, std::byte* panel) {
  switch (dtype) {
    case DType::kF32:
      return PackFloats<uint32_t>(rows, cols, source, panel);
    case DType::kF16:
    case DType::kBF16:
      return PackFloats<uint16_t>(rows, cols, source, panel);
    default:
      return VisitQuantType(dtype, [&](auto type) {
        PackQuants<type()>(rows, BlockCount(dtype, cols), source, panel);
      });
  }
}

}  // namespace

void Pack(DType dtype, int64_t rows, int64_t cols, const std::byte* source, std::byte* out) {
  const int64_t panels = PanelCount(rows);
  const int64_t panel_bytes = PackedBytes(dtype, kPanelRows, cols);
  const int64_t row_bytes = BlockCount(dtype, cols) * BlockBytes(dtype);
  if (rows % kPanelRows != 0) std::memset(out + (panels - 1) * panel_bytes, 0, panel_bytes);
  for (int64_t p = 0; p < panels; ++p) {
    const int live = static_cast<int>(std::min<int64_t>(kPanelRows, rows - p * kPanelRows));
    PackPanel(dtype, live, cols, source + p * kPanelRows * row_bytes, out + p * panel_bytes);
  }
}

}  // namespace tidepool::kernels
