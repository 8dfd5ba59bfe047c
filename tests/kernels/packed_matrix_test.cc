#include "kernels/packed_matrix.h"

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// Blocks of one type, and the values to which the gguf package dequantises them.
struct GoldenBlock {
  std::string bytes;
  std::vector<uint32_t> values;  // bits of float32
};

// Reads tests/engine/checkpoint/dequantize_vectors.txt. Each line has a type, bytes, and their
// values in hexadecimal. Lines of float types have many elements.
std::vector<GoldenBlock> GoldenBlocks(DType dtype) {
  std::ifstream file("tests/engine/checkpoint/dequantize_vectors.txt");
  std::vector<GoldenBlock> blocks;
  std::string name, bytes, values;
  while (file >> name >> bytes >> values) {
    if (name != DTypeName(dtype)) continue;
    GoldenBlock block{absl::HexStringToBytes(bytes), {}};
    for (size_t i = 0; i < values.size(); i += 8) {
      block.values.push_back(static_cast<uint32_t>(std::stoul(values.substr(i, 8), nullptr, 16)));
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// Unpacks every row of matrices that consist of the golden blocks. Each block is at every position
// of a panel.
TEST(PackedMatrixTest, UnpackRowIsGgufDequantisation) {
  for (const DType dtype : kAllDTypes) {
    const std::vector<GoldenBlock> golden = GoldenBlocks(dtype);
    ASSERT_FALSE(golden.empty()) << DTypeName(dtype);
    const int64_t block_cols = static_cast<int64_t>(golden[0].values.size());
    for (const int64_t rows : {1, 7, 8, 21}) {
      for (const int64_t blocks : {1, 3}) {
        std::vector<std::byte> source;
        const auto at = [&](int64_t row, int64_t b) -> const GoldenBlock& {
          return golden[(row * blocks + b + rows) % golden.size()];
        };
        for (int64_t i = 0; i < rows * blocks; ++i) {
          for (const char byte : at(i / blocks, i % blocks).bytes) {
            source.push_back(static_cast<std::byte>(byte));
          }
        }
        const int64_t cols = blocks * block_cols;
        Buffer packed(PackedBytes(dtype, rows, cols));
        Pack(dtype, rows, cols, source.data(), packed.data());
        std::vector<float> row(cols);
        for (int64_t r = 0; r < rows; ++r) {
          UnpackRow({dtype, rows, cols, packed.data()}, r, absl::MakeSpan(row));
          for (int64_t k = 0; k < cols; ++k) {
            ASSERT_EQ(FloatBits(row[k]), at(r, k / block_cols).values[k % block_cols])
                << DTypeName(dtype) << " row " << r << " of " << rows << ", column " << k;
          }
        }
      }
    }
  }
}

TEST(PackedMatrixTest, RecordsHaveTheStatedSizes) {
  const std::pair<DType, int> sizes[] = {
      {DType::kF32, 32},       {DType::kF16, 16},        {DType::kBF16, 16},
      {DType::kQ8_0, 34 * 8},  {DType::kQ4_0, 18 * 8},   {DType::kQ4_1, 20 * 8},
      {DType::kQ5_0, 22 * 8},  {DType::kQ5_1, 24 * 8},   {DType::kQ2_K, 84 * 8},
      {DType::kQ3_K, 114 * 8}, {DType::kQ4_K, 148 * 8},  {DType::kQ5_K, 180 * 8},
      {DType::kQ6_K, 210 * 8}, {DType::kIQ4_NL, 18 * 8}, {DType::kIQ4_XS, 138 * 8},
      {DType::kMXFP4, 17 * 8},
  };
  ASSERT_EQ(std::size(sizes), std::size(kAllDTypes));
  for (const auto& [dtype, bytes] : sizes) {
    EXPECT_EQ(PanelRecordBytes(dtype), bytes) << DTypeName(dtype);
    EXPECT_EQ(PackedBytes(dtype, 9, 512), 2u * bytes * (512 / BlockElements(dtype)));
  }
}

// The layout in panel.h, byte by byte, because pack files depend on it.
TEST(PackedMatrixTest, BytesAreWherePanelSays) {
  const Weight weight(DType::kQ4_1, 11, 64, 5);
  const std::byte* packed = weight.matrix().data;
  constexpr int kRecord = 160;
  ASSERT_EQ(PackedBytes(DType::kQ4_1, 11, 64), 2u * 2 * kRecord);
  for (int row = 0; row < 16; ++row) {
    for (int b = 0; b < 2; ++b) {
      const std::byte* record = packed + (row / 8 * 2 + b) * kRecord;
      std::vector<std::byte> expected(20, std::byte{0});  // rows past the last are zero
      if (row < 11) {
        std::memcpy(expected.data(), weight.source().data() + (row * 2 + b) * 20, 20);
      }
      const int r = row % 8;
      EXPECT_EQ(0, std::memcmp(record + 2 * r, &expected[0], 2));
      EXPECT_EQ(0, std::memcmp(record + 16 + 2 * r, &expected[2], 2));
      for (int g = 0; g < 4; ++g) {
        EXPECT_EQ(0, std::memcmp(record + 32 + 4 * (8 * g + r), &expected[4 + 4 * g], 4));
      }
    }
  }
}

TEST(PackedMatrixDeathTest, ColumnsMustFillBlocks) {
  EXPECT_DEATH(PackedBytes(DType::kQ8_0, 4, 33), "a Q8_0 matrix of 4 x 33");
}

}  // namespace
}  // namespace tidepool::kernels
