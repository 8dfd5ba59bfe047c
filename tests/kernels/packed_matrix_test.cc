#include "kernels/packed_matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// The formulas of GGUF's types, straight from its row-major blocks.
float Dequantise(DType dtype, const std::byte* row, int64_t k) {
  const std::byte* block = row + k / BlockElements(dtype) * BlockBytes(dtype);
  const auto half = [&](int at) {
    uint16_t bits;
    std::memcpy(&bits, block + at, 2);
    return bits;
  };
  const auto nibble = [&](int at) {
    const int j = static_cast<int>(k % 32);
    const int pair = static_cast<int>(block[at + j % 16]);
    return static_cast<float>(j < 16 ? pair & 15 : pair >> 4);
  };
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, block, 4);
      return value;
    }
    case DType::kF16:
      return F16ToF32(half(0));
    case DType::kBF16:
      return FloatFromBits(uint32_t{half(0)} << 16);
    case DType::kQ8_0:
      return F16ToF32(half(0)) * static_cast<float>(static_cast<int8_t>(block[2 + k % 32]));
    case DType::kQ4_0:
      return F16ToF32(half(0)) * (nibble(2) - 8);
    case DType::kQ4_1:
      return F16ToF32(half(0)) * nibble(4) + F16ToF32(half(2));
  }
  return NAN;
}

TEST(PackedMatrixTest, UnpackRowIsGgufDequantisation) {
  for (const DType dtype : kAllDTypes) {
    for (const int64_t rows : {1, 7, 8, 9, 16, 21}) {
      for (const int64_t cols : {32, 96, 256}) {
        const Weight weight(dtype, rows, cols, 17 * rows + cols);
        std::vector<float> row(cols);
        for (int64_t r = 0; r < rows; ++r) {
          UnpackRow(weight.matrix(), r, absl::MakeSpan(row));
          const std::byte* source =
              weight.source().data() + r * cols / BlockElements(dtype) * BlockBytes(dtype);
          for (int64_t k = 0; k < cols; ++k) {
            ASSERT_EQ(FloatBits(row[k]), FloatBits(Dequantise(dtype, source, k)))
                << DTypeName(dtype) << " row " << r << " column " << k;
          }
        }
      }
    }
  }
}

// Published values of one block: bytes (73 i + 29) mod 256, then d = 0.125 and m = 0.25.
struct Vector {
  DType dtype;
  float first, second, at17, last;
  double sum, weighted;
};

TEST(PackedMatrixTest, KnownBlocks) {
  const Vector vectors[] = {
      {DType::kQ4_0, 0.875f, 0, 0.875f, 0.875f, 0.375, 20.875},
      {DType::kQ4_1, 0.375f, 1.5f, 1.25f, 1.25f, 38.625, 657},
      {DType::kQ8_0, -10.125f, -1, -15, -15.25f, -54, -878},
  };
  for (const Vector& v : vectors) {
    std::vector<std::byte> block(BlockBytes(v.dtype));
    for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(73 * i + 29);
    const uint16_t d = 0x3000;
    const uint16_t m = 0x3400;
    std::memcpy(block.data(), &d, 2);
    if (v.dtype == DType::kQ4_1) std::memcpy(block.data() + 2, &m, 2);
    Buffer packed(PackedBytes(v.dtype, 1, 32));
    Pack(v.dtype, 1, 32, block.data(), packed.data());
    std::vector<float> x(32);
    UnpackRow({v.dtype, 1, 32, packed.data()}, 0, absl::MakeSpan(x));
    EXPECT_EQ(x[0], v.first);
    EXPECT_EQ(x[1], v.second);
    EXPECT_EQ(x[17], v.at17);
    EXPECT_EQ(x[31], v.last);
    double sum = 0;
    double weighted = 0;
    for (int i = 0; i < 32; ++i) {
      sum += x[i];
      weighted += x[i] * (i + 1.0);
    }
    EXPECT_EQ(sum, v.sum) << DTypeName(v.dtype);
    EXPECT_EQ(weighted, v.weighted) << DTypeName(v.dtype);
  }
}

// The layout that panel.h states, byte by byte: pack files depend on it.
TEST(PackedMatrixTest, BytesAreWherePanelSays) {
  const Weight weight(DType::kQ4_1, 11, 64, 5);
  const std::byte* packed = weight.matrix().data;
  ASSERT_EQ(PackedBytes(DType::kQ4_1, 11, 64), 2u * 2 * kQ4_1RecordBytes);
  for (int row = 0; row < 16; ++row) {
    for (int b = 0; b < 2; ++b) {
      const std::byte* record = packed + (row / 8 * 2 + b) * kQ4_1RecordBytes;
      std::vector<std::byte> expected(20, std::byte{0});  // rows past the last are zero
      if (row < 11) {
        std::memcpy(expected.data(), weight.source().data() + (row * 2 + b) * 20, 20);
      }
      const int r = row % 8;
      EXPECT_EQ(0, std::memcmp(record + 2 * r, &expected[0], 2));
      EXPECT_EQ(0, std::memcmp(record + kPanelMinOffset + 2 * r, &expected[2], 2));
      for (int g = 0; g < 4; ++g) {
        EXPECT_EQ(
            0, std::memcmp(record + kQ4_1QuantOffset + 4 * (8 * g + r), &expected[4 + 4 * g], 4));
      }
    }
  }
}

TEST(PackedMatrixDeathTest, ColumnsMustFillBlocks) {
  EXPECT_DEATH(PackedBytes(DType::kQ8_0, 4, 33), "a Q8_0 matrix of 4 x 33");
}

}  // namespace
}  // namespace tidepool::kernels
