#include "engine/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufFile OpenOrDie(const std::string& path) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(path);
  CHECK_OK(file.status());
  return *std::move(file);
}

GgufFile OpenBytes(const std::string& bytes) {
  return OpenOrDie(WriteTempFile("model.gguf", bytes));
}

std::vector<float> Ramp(int count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.5f);
  return values;
}

TEST(GgufFile, ReadsEveryScalarType) {
  GgufWriter writer;
  writer.Value("u8", GgufValueType::kUint8, BytesOf(uint8_t{200}))
      .Value("i8", GgufValueType::kInt8, BytesOf(int8_t{-100}))
      .Value("u16", GgufValueType::kUint16, BytesOf(uint16_t{60000}))
      .Value("i16", GgufValueType::kInt16, BytesOf(int16_t{-30000}))
      .U32("u32", 4000000000)
      .Value("i32", GgufValueType::kInt32, BytesOf(int32_t{-2000000000}))
      .Value("u64", GgufValueType::kUint64, BytesOf(uint64_t{1} << 62))
      .Value("i64", GgufValueType::kInt64, BytesOf(std::numeric_limits<int64_t>::min()))
      .F32("f32", 0.1f)
      .Value("f64", GgufValueType::kFloat64, BytesOf(0.1))
      .Bool("yes", true)
      .Bool("no", false)
      .String("text", "naïve");
  const GgufFile file = OpenBytes(writer.Build());
  EXPECT_EQ(*file.Int("u8"), 200);
  EXPECT_EQ(*file.Int("i8"), -100);
  EXPECT_EQ(*file.Int("u16"), 60000);
  EXPECT_EQ(*file.Int("i16"), -30000);
  EXPECT_EQ(*file.Int("u32"), 4000000000);
  EXPECT_EQ(*file.Int("i32"), -2000000000);
  EXPECT_EQ(*file.Int("u64"), int64_t{1} << 62);
  EXPECT_EQ(*file.Int("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*file.Float("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*file.Float("f64"), 0.1);
  EXPECT_TRUE(*file.Bool("yes"));
  EXPECT_FALSE(*file.Bool("no"));
  EXPECT_EQ(*file.String("text"), "naïve");
  EXPECT_EQ(file.metadata().size(), 13u);
  EXPECT_EQ(file.metadata().front().key, "u8");
}

TEST(GgufFile, ReadsArrays) {
  GgufWriter writer;
  writer.Strings("strings", {"", "b", "cc"})
      .I32s("ints", {-1, 0, 7})
      .Array("floats", GgufValueType::kFloat32, 2, BytesOf(std::vector<float>{1.5f, -2.0f}))
      .Array("bools", GgufValueType::kBool, 3, std::string("\1\0\1", 3))
      .Array("none", GgufValueType::kUint64, 0, "");
  const GgufFile file = OpenBytes(writer.Build());
  EXPECT_THAT(*file.Strings("strings"), ElementsAre("", "b", "cc"));
  EXPECT_THAT(*file.Ints("ints"), ElementsAre(-1, 0, 7));
  EXPECT_THAT(*file.Floats("floats"), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(*file.Bools("bools"), ElementsAre(true, false, true));
  EXPECT_TRUE(file.Ints("none")->empty());
}

TEST(GgufFile, DefaultsAreForMissingKeysOnly) {
  const GgufFile file = OpenBytes(GgufWriter().U32("n", 5).String("s", "x").Build());
  EXPECT_EQ(*file.IntOr("n", 9), 5);
  EXPECT_EQ(*file.IntOr("absent", 9), 9);
  EXPECT_EQ(*file.FloatOr("absent", 0.5), 0.5);
  EXPECT_TRUE(*file.BoolOr("absent", true));
  EXPECT_EQ(*file.StringOr("absent", "d"), "d");
  EXPECT_EQ(file.IntOr("s", 9).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file.FloatOr("n", 9).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GgufFile, ErrorsOfGettersNameFileKeyAndTypes) {
  GgufWriter writer;
  writer.U32("n", 5).I32s("list", {1}).Value("huge", GgufValueType::kUint64, BytesOf(~uint64_t{0}));
  const GgufFile file = OpenBytes(writer.Build());
  EXPECT_EQ(file.String("n").status().message(),
            file.path() + ": n: found a u32, expected a string");
  EXPECT_EQ(file.Int("list").status().message(),
            file.path() + ": list: found an array of i32, expected an integer");
  EXPECT_EQ(file.Strings("list").status().message(),
            file.path() + ": list: found an array of i32, expected an array of strings");
  EXPECT_THAT(std::string(file.Int("absent").status().message()), HasSubstr("absent: missing"));
  EXPECT_THAT(std::string(file.Int("huge").status().message()), HasSubstr("2^63"));
}

TEST(GgufFile, FormatsValuesForPeople) {
  GgufWriter writer;
  writer.String("s", "a\nb")
      .I32s("list", {1, 2, 3, 4, 5, 6, 7, 8, 9})
      .Bool("b", true)
      .F32("f", 0.5);
  const GgufFile file = OpenBytes(writer.Build());
  EXPECT_EQ(GgufFile::FormatValue(*file.Find("s")), "\"a\\nb\"");
  EXPECT_EQ(GgufFile::FormatValue(*file.Find("list")), "i32[9] {1, 2, 3, 4, 5, 6, 7, 8, ...}");
  EXPECT_EQ(GgufFile::FormatValue(*file.Find("b")), "true");
  EXPECT_EQ(GgufFile::FormatValue(*file.Find("f")), "0.5");
}

TEST(GgufFile, PlacesTensors) {
  for (const uint32_t version : {2, 3}) {
    GgufWriter writer;
    writer.set_version(version).set_alignment(64);
    writer.F32Tensor("a", {3, 2}, Ramp(6))
        .Tensor("b", GgmlType::kQ8_0, {32, 1, 2}, std::string(68, 'x'));
    const GgufFile file = OpenBytes(writer.Build());
    EXPECT_EQ(file.format(), absl::StrCat("GGUF v", version));
    ASSERT_EQ(file.tensors().size(), 2u);
    const GgufTensor* a = file.FindTensor("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->ShapeString(), "{3, 2}");
    EXPECT_EQ(a->rows(), 2);
    EXPECT_EQ(a->row_bytes(), 12u);
    EXPECT_EQ(a->bytes, 24u);
    EXPECT_EQ(a->file_offset % 64, 0u);
    EXPECT_EQ(reinterpret_cast<const float*>(a->data)[5], 5.5f);
    const GgufTensor* b = file.FindTensor("b");
    EXPECT_EQ(b->file_offset, a->file_offset + 64);
    EXPECT_EQ(b->elements(), 64);
    EXPECT_EQ(file.FindTensor("c"), nullptr);
  }
}

TEST(GgufFile, DroppedPagesReadAgain) {
  const std::vector<float> values = Ramp(5000);
  const GgufFile file = OpenBytes(GgufWriter().F32Tensor("a", {5000}, values).Build());
  const GgufTensor* tensor = file.FindTensor("a");
  file.DropPages(tensor->data, tensor->bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->data), tensor->bytes),
            BytesOf(values));
}

TEST(GgufFile, DigestFollowsEveryPartOfTheFile) {
  GgufWriter writer;
  writer.U32("n", 5).F32Tensor("a", {3, 2}, Ramp(6));
  const std::string bytes = writer.Build();
  const std::string digest = OpenBytes(bytes).SampledDigest();
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(OpenBytes(bytes).SampledDigest(), digest);
  EXPECT_NE(OpenBytes(Patched(bytes, writer.OffsetOf("n.value"), 6)).SampledDigest(), digest);
  EXPECT_NE(OpenBytes(Patched(bytes, writer.OffsetOf("data") + 20, 0.25f)).SampledDigest(), digest);
}

TEST(GgufFile, DigestSamplesBigFiles) {
  // The model has 20 MiB, which is more than the size up to which all bytes are hashed.
  std::vector<float> values = Ramp(5 << 20);
  const std::string digest =
      OpenBytes(GgufWriter().F32Tensor("a", {5 << 20}, values).Build()).SampledDigest();
  values[values.size() / 2] = -1;
  EXPECT_NE(OpenBytes(GgufWriter().F32Tensor("a", {5 << 20}, values).Build()).SampledDigest(),
            digest);
}

TEST(GgufFile, MissingFileIsNotFound) {
  const absl::Status status = GgufFile::Open(testing::TempDir() + "/absent.gguf").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent.gguf: cannot be opened"));
  EXPECT_EQ(GgufFile::Open(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

// A checkpoint in three parts, each with one tensor. `change` may damage a part.
class SplitTest : public testing::Test {
 protected:
  static constexpr int kParts = 3;

  SplitTest() {
    for (int i = 0; i < kParts; ++i) {
      writers_[i]
          .Value("split.no", GgufValueType::kUint16, BytesOf(static_cast<uint16_t>(i)))
          .Value("split.count", GgufValueType::kUint16, BytesOf(uint16_t{kParts}))
          .Value("split.tensors.count", GgufValueType::kInt32, BytesOf(int32_t{kParts}))
          .F32Tensor("t" + std::to_string(i), {4}, std::vector<float>(4, 10.0f * i));
    }
    writers_[0].String("general.architecture", "llama");
  }

  static std::string Name(int part) {
    return "split-0000" + std::to_string(part + 1) + "-of-00003.gguf";
  }
  std::string Path(int part) const { return testing::TempDir() + "/" + Name(part); }
  void WriteAll() {
    for (int i = 0; i < kParts; ++i) WriteTempFile(Name(i), writers_[i].Build());
  }

  GgufWriter writers_[kParts];
};

TEST_F(SplitTest, AnyPartOpensAll) {
  WriteAll();
  for (int named = 0; named < kParts; ++named) {
    const GgufFile file = OpenOrDie(Path(named));
    EXPECT_EQ(file.path(), Path(0));
    EXPECT_EQ(file.part_count(), kParts);
    EXPECT_EQ(*file.String("general.architecture"), "llama");
    ASSERT_EQ(file.tensors().size(), 3u);
    for (int i = 0; i < kParts; ++i) {
      const GgufTensor* tensor = file.FindTensor("t" + std::to_string(i));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->part, i);
      EXPECT_EQ(reinterpret_cast<const float*>(tensor->data)[3], 10.0f * i);
    }
  }
}

TEST_F(SplitTest, MissingPartIsNamed) {
  WriteAll();
  std::remove(Path(1).c_str());
  const absl::Status status = GgufFile::Open(Path(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Name(1) + ": missing: part 2 of 3"));
}

TEST_F(SplitTest, WrongPartsAreRefused) {
  WriteAll();
  WriteTempFile(Name(1), writers_[2].Build());
  EXPECT_THAT(std::string(GgufFile::Open(Path(0)).status().message()),
              HasSubstr("split.no: 2 among 3 parts, expected 1 among 3"));

  WriteAll();
  writers_[1].F32Tensor("t0", {4}, std::vector<float>(4));
  WriteTempFile(Name(1), writers_[1].Build());
  EXPECT_THAT(std::string(GgufFile::Open(Path(0)).status().message()),
              HasSubstr("t0: is also in another part"));
}

TEST_F(SplitTest, ExtremeNumbersAreRefused) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  writers_[1].Value("split.no", GgufValueType::kUint64, BytesOf(kMax));
  WriteAll();
  EXPECT_THAT(std::string(GgufFile::Open(Path(0)).status().message()),
              HasSubstr("split.no: 9223372036854775807 among 3 parts"));
  writers_[0].Value("split.count", GgufValueType::kUint64, BytesOf(kMax));
  WriteAll();
  EXPECT_THAT(std::string(GgufFile::Open(Path(0)).status().message()),
              HasSubstr("split.count: 9223372036854775807, expected 1 to 99999"));
}

TEST_F(SplitTest, TensorCountIsChecked) {
  for (GgufWriter& writer : writers_) {
    writer.Value("split.tensors.count", GgufValueType::kInt32, BytesOf(int32_t{7}));
  }
  WriteAll();
  EXPECT_THAT(std::string(GgufFile::Open(Path(0)).status().message()),
              HasSubstr("split.tensors.count: 7, but the parts hold 3 tensors"));
}

TEST_F(SplitTest, ARenamedPartNamesTheNameThatItNeeds) {
  const std::string path = WriteTempFile("renamed.gguf", writers_[0].Build());
  const absl::Status status = GgufFile::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NAME-00001-of-00003.gguf"));
}

}  // namespace
}  // namespace tidepool::engine
