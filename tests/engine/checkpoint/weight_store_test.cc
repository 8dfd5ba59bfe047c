#include "engine/checkpoint/weight_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/checkpoint/dequantize.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::PackedMatrix;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<WeightStore> Store(GgufWriter writer, int threads = 2) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("weights.gguf", writer.Build()));
  CHECK_OK(file.status());
  auto store = WeightStore::Create(*std::move(file), {.threads = threads});
  CHECK_OK(store.status());
  return *std::move(store);
}

// Returns random blocks. Each byte is such that scales are finite.
std::string RandomBlocks(GgmlType type, int64_t elements, unsigned seed) {
  const GgmlTypeInfo& info = TypeInfo(type);
  std::mt19937 random(seed);
  std::string bytes(elements / info.block_elements * info.block_bytes, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0x3b);
  return bytes;
}

// Checks that row `row` of a packed matrix is the dequantisation of row `source_row` of the tensor.
void ExpectRow(const GgufTensor& tensor, int64_t source_row, const PackedMatrix& matrix,
               int64_t row) {
  std::vector<float> expected(tensor.dims[0]);
  Dequantize(tensor.type, tensor.data + source_row * tensor.row_bytes(), absl::MakeSpan(expected));
  std::vector<float> found(matrix.cols);
  kernels::UnpackRow(matrix, row, absl::MakeSpan(found));
  EXPECT_EQ(found, expected) << tensor.name << " row " << source_row;
}

TEST(WeightStore, PacksEveryTypeExactly) {
  // With 37 rows, the last panel is not full.
  constexpr int64_t kRows = 37;
  constexpr int64_t kCols = 512;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = FindGgmlType(id);
    if (info == nullptr || !CanDequantize(info->type)) continue;
    const auto store = Store(GgufWriter().Tensor("w", info->type, {kCols, kRows},
                                                 RandomBlocks(info->type, kRows * kCols, id)));
    const auto matrix = store->Matrix({.name = "w", .rows = kRows, .cols = kCols});
    ASSERT_TRUE(matrix.ok()) << info->name << " " << matrix.status();
    EXPECT_EQ(matrix->dtype, NativeDType(info->type).value_or(DType::kF32)) << info->name;
    EXPECT_EQ(matrix->rows, kRows);
    EXPECT_EQ(matrix->cols, kCols);
    for (const int64_t row : {0, 1, 7, 8, 36}) {
      ExpectRow(*store->file().FindTensor("w"), row, *matrix, row);
    }
    EXPECT_EQ(store->weight_bytes(), kernels::PackedBytes(matrix->dtype, kRows, kCols));
  }
}

TEST(WeightStore, ThreadsDoNotChangeTheBytes) {
  constexpr int64_t kRows = 4099;
  constexpr int64_t kCols = 256;
  for (const GgmlType type : {GgmlType::kQ4_0, GgmlType::kQ6_K}) {
    GgufWriter writer;
    writer.Tensor("w", type, {kCols, kRows}, RandomBlocks(type, kRows * kCols, 1));
    const auto one = Store(writer, 1);
    const auto three = Store(writer, 3);
    const PackedMatrix a = *one->Matrix({.name = "w", .rows = kRows, .cols = kCols});
    const PackedMatrix b = *three->Matrix({.name = "w", .rows = kRows, .cols = kCols});
    ASSERT_EQ(one->weight_bytes(), three->weight_bytes());
    EXPECT_EQ(__builtin_memcmp(a.data, b.data, one->weight_bytes()), 0) << GgmlTypeName(type);
  }
}

TEST(WeightStore, CutsFusedAndStackedTensors) {
  GgufWriter writer;
  writer.Tensor("qkv", GgmlType::kF16, {32, 20}, RandomBlocks(GgmlType::kF16, 640, 1))
      .Tensor("experts", GgmlType::kQ8_0, {32, 12, 5}, RandomBlocks(GgmlType::kQ8_0, 1920, 2));
  const auto store = Store(writer);
  const auto k =
      store->Matrix({.name = "qkv", .rows = 5, .cols = 32, .first_row = 10, .tensor_rows = 20});
  ASSERT_TRUE(k.ok()) << k.status();
  for (int64_t row = 0; row < 5; ++row) {
    ExpectRow(*store->file().FindTensor("qkv"), 10 + row, *k, row);
  }

  for (int64_t expert = 0; expert < 5; ++expert) {
    const auto matrix =
        store->Matrix({.name = "experts", .rows = 12, .cols = 32, .slab = expert, .slabs = 5});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    ExpectRow(*store->file().FindTensor("experts"), expert * 12, *matrix, 0);
    ExpectRow(*store->file().FindTensor("experts"), expert * 12 + 11, *matrix, 11);
  }
}

// Five heads of 4 rows, each of which has 3 rows of one matrix and 1 row of another.
TEST(WeightStore, TakesPiecesOfATensorThatIsFusedHeadByHead) {
  const auto store = Store(GgufWriter().Tensor("fused", GgmlType::kQ8_0, {32, 20},
                                               RandomBlocks(GgmlType::kQ8_0, 640, 3)));
  MatrixRef ref = {.name = "fused",
                   .rows = 15,
                   .cols = 32,
                   .tensor_rows = 20,
                   .piece_rows = 3,
                   .piece_stride = 4};
  const auto threes = store->Matrix(ref);
  ASSERT_TRUE(threes.ok()) << threes.status();
  ref.rows = 5;
  ref.first_row = 3;
  ref.piece_rows = 1;
  const auto ones = store->Matrix(ref);
  ASSERT_TRUE(ones.ok()) << ones.status();
  const GgufTensor& tensor = *store->file().FindTensor("fused");
  for (int64_t row = 0; row < 15; ++row) ExpectRow(tensor, row / 3 * 4 + row % 3, *threes, row);
  for (int64_t head = 0; head < 5; ++head) ExpectRow(tensor, head * 4 + 3, *ones, head);
  EXPECT_TRUE(store->CheckReadable(ref).ok());
  EXPECT_TRUE(store->Unused().empty());
}

TEST(WeightStore, ErrorsInPiecesNameTheRowOfTheTensor) {
  std::vector<float> values(24, 0.5f);
  values[4 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
  const auto store = Store(GgufWriter().F32Tensor("fused", {4, 6}, values));
  const auto matrix = store->Matrix({.name = "fused",
                                     .rows = 3,
                                     .cols = 4,
                                     .tensor_rows = 6,
                                     .piece_rows = 1,
                                     .piece_stride = 2});
  EXPECT_THAT(matrix.status().message(), HasSubstr("fused: row 4 has a NaN"));
}

TEST(WeightStore, PacksOnce) {
  const auto store = Store(GgufWriter().F32Tensor("w", {4, 3}, std::vector<float>(12, 0.5f)));
  const PackedMatrix first = *store->Matrix({.name = "w", .rows = 3, .cols = 4});
  const size_t bytes = store->weight_bytes();
  EXPECT_EQ(store->Matrix({.name = "w", .rows = 3, .cols = 4})->data, first.data);
  EXPECT_EQ(store->weight_bytes(), bytes);
}

TEST(WeightStore, VectorsOfEveryFloatType) {
  GgufWriter writer;
  writer.F32Tensor("f32", {3}, {1.0f, 2.0f, -0.5f})
      .Tensor("f16", GgmlType::kF16, {2}, BytesOf(std::vector<uint16_t>{0x3c00, 0xc000}))
      .Tensor("bf16", GgmlType::kBF16, {2}, BytesOf(std::vector<uint16_t>{0x3f80, 0xc000}))
      .Tensor("f64", GgmlType::kF64, {2, 1}, BytesOf(std::vector<double>{1.0, 0.1}));
  const auto store = Store(writer);
  EXPECT_THAT(*store->Vector("f32", 3), ElementsAre(1.0f, 2.0f, -0.5f));
  EXPECT_THAT(*store->Vector("f16", 2), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(*store->Vector("bf16", 2), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(*store->Vector("f64", 2), ElementsAre(1.0f, 0.1f));
  EXPECT_EQ(store->Vector("f32", 3)->data(), store->Vector("f32", 3)->data());
  EXPECT_EQ(store->weight_bytes(), 36u);
}

TEST(WeightStore, ErrorsNameTensorAndShapes) {
  GgufWriter writer;
  writer.F32Tensor("w", {4, 3}, std::vector<float>(12))
      .F32Tensor("v", {4}, std::vector<float>(4))
      .Tensor("iq", GgmlType::kIQ2_XXS, {256, 1}, std::string(66, '\0'))
      .Tensor("q", GgmlType::kQ8_0, {32}, std::string(34, '\0'));
  const auto store = Store(writer);
  const std::string path = store->file().path();
  const auto message = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message(store->Matrix({.name = "w", .rows = 4, .cols = 3}).status()),
            path + ": w: shape {4, 3}, expected {3, 4}");
  EXPECT_EQ(message(store->Matrix({.name = "w", .rows = 3, .cols = 4, .slabs = 2}).status()),
            path + ": w: shape {4, 3}, expected {4, 3, 2}");
  EXPECT_EQ(message(store->Matrix({.name = "none", .rows = 4, .cols = 3}).status()),
            path + ": none: missing, expected a tensor of shape {3, 4}");
  EXPECT_EQ(message(store->Vector("v", 5).status()), path + ": v: shape {4}, expected {5}");
  EXPECT_EQ(message(store->Vector("w", 12).status()), path + ": w: shape {4, 3}, expected {12}");
  EXPECT_THAT(message(store->Vector("q", 32).status()),
              HasSubstr("q: type Q8_0, expected F32, F16"));
  EXPECT_THAT(message(store->Matrix({.name = "iq", .rows = 1, .cols = 256}).status()),
              HasSubstr("iq: type IQ2_XXS is not supported yet"));
}

// Returns the status for a tensor with 20 rows of 32 columns, and one bad number at byte `offset`
// of row 13.
template <typename T>
absl::Status StatusWithBad(GgmlType type, int row, size_t offset, T value) {
  std::string bytes = RandomBlocks(type, 20 * 256, 3);
  const size_t row_bytes = bytes.size() / 20;
  bytes.replace(row * row_bytes + offset, sizeof(T), BytesOf(value));
  const auto store = Store(GgufWriter().Tensor("w", type, {256, 20}, bytes));
  return store->Matrix({.name = "w", .rows = 20, .cols = 256}).status();
}

TEST(WeightStore, RefusesNumbersThatAreNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr uint16_t kInf16 = 0x7c00;
  const std::vector<absl::Status> found = {
      StatusWithBad(GgmlType::kF32, 13, 4 * 255, kNan),
      StatusWithBad(GgmlType::kF32, 13, 0, -std::numeric_limits<float>::infinity()),
      StatusWithBad(GgmlType::kF16, 13, 2 * 17, uint16_t{0xfe00}),
      StatusWithBad(GgmlType::kBF16, 13, 2 * 17, uint16_t{0x7f80}),
      StatusWithBad(GgmlType::kQ8_0, 13, 7 * 34, kInf16),
      StatusWithBad(GgmlType::kQ4_0, 13, 3 * 18, kInf16),
      StatusWithBad(GgmlType::kQ4_1, 13, 20, uint16_t{0x7e01}),
      StatusWithBad(GgmlType::kQ4_1, 13, 20 + 2, kInf16),
      StatusWithBad(GgmlType::kQ5_0, 13, 22, kInf16),
      StatusWithBad(GgmlType::kQ5_1, 13, 24, uint16_t{0x7e01}),
      StatusWithBad(GgmlType::kQ5_1, 13, 7 * 24 + 2, kInf16),
      StatusWithBad(GgmlType::kQ2_K, 13, 80, kInf16),
      StatusWithBad(GgmlType::kQ2_K, 13, 82, kInf16),
      StatusWithBad(GgmlType::kQ3_K, 13, 108, kInf16),
      StatusWithBad(GgmlType::kQ4_K, 13, 0, uint16_t{0xfc00}),
      StatusWithBad(GgmlType::kQ4_K, 13, 2, kInf16),
      StatusWithBad(GgmlType::kQ5_K, 13, 0, kInf16),
      StatusWithBad(GgmlType::kQ5_K, 13, 2, kInf16),
      StatusWithBad(GgmlType::kQ6_K, 13, 208, uint16_t{0x7e00}),
      StatusWithBad(GgmlType::kIQ4_NL, 13, 7 * 18, kInf16),
      StatusWithBad(GgmlType::kIQ4_XS, 13, 0, kInf16),
      StatusWithBad(GgmlType::kMXFP4, 13, 7 * 17, uint8_t{253}),
      StatusWithBad(GgmlType::kMXFP4, 13, 0, uint8_t{255}),
  };
  for (const absl::Status& status : found) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("w: row 13 has a NaN or an infinity"));
  }
  // In the quants of a block, the same bits are ordinary numbers.
  EXPECT_TRUE(StatusWithBad(GgmlType::kQ8_0, 13, 7 * 34 + 2, kInf16).ok());
  EXPECT_TRUE(StatusWithBad(GgmlType::kQ2_K, 13, 0, kInf16).ok());
  EXPECT_TRUE(StatusWithBad(GgmlType::kQ6_K, 13, 0, kInf16).ok());
  // 6 * 2^125 is the largest MXFP4 value in float32.
  EXPECT_TRUE(StatusWithBad(GgmlType::kMXFP4, 13, 17, uint8_t{252}).ok());

  const auto store = Store(GgufWriter().F32Tensor("v", {2}, {1.0f, kNan}));
  EXPECT_THAT(std::string(store->Vector("v", 2).status().message()), HasSubstr("v: has a NaN"));
}

TEST(WeightStore, ShapesOnlyChecksAllButTheNumbersOfMatrices) {
  GgufWriter writer;
  writer.F32Tensor("nan", {32, 1}, std::vector<float>(32, std::nanf("")))
      .Tensor("q8_k", GgmlType::kQ8_K, {256, 1}, std::string(292, '\0'))
      .F32Tensor("norm", {2}, {std::nanf(""), 1});
  auto file = GgufFile::Open(WriteTempFile("shapes.gguf", writer.Build()));
  ASSERT_TRUE(file.ok());
  const auto store = WeightStore::Create(*std::move(file),
                                         {.threads = 1, .contents = WeightContents::kShapesOnly});
  ASSERT_TRUE(store.ok());
  const auto matrix = (*store)->Matrix({.name = "nan", .rows = 1, .cols = 32});
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->data, nullptr);
  EXPECT_EQ((*store)->weight_bytes(), 0u);
  EXPECT_FALSE((*store)->Matrix({.name = "nan", .rows = 2, .cols = 16}).ok());
  EXPECT_FALSE((*store)->Matrix({.name = "q8_k", .rows = 1, .cols = 256}).ok());
  EXPECT_FALSE((*store)->Vector("norm", 2).ok());
}

TEST(WeightStore, ListsTensorsThatWereNeverRequested) {
  GgufWriter writer;
  writer.F32Tensor("a", {4, 2}, std::vector<float>(8))
      .F32Tensor("rope_freqs.weight", {4}, std::vector<float>(4))
      .F32Tensor("b", {4}, std::vector<float>(4));
  const auto store = Store(writer);
  EXPECT_THAT(store->Unused(), ElementsAre("a", "rope_freqs.weight", "b"));
  ASSERT_TRUE(store->Matrix({.name = "a", .rows = 2, .cols = 4}).ok());
  ASSERT_TRUE(store->Vector("b", 4).ok());
  EXPECT_THAT(store->Unused(), ElementsAre("rope_freqs.weight"));
  EXPECT_TRUE(store->Has("rope_freqs.weight"));
  EXPECT_FALSE(store->Has("c"));
}

TEST(WeightStore, RefusesBadThreadCounts) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("empty.gguf", GgufWriter().Build()));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(WeightStore::Create(*std::move(file), {.threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::engine
