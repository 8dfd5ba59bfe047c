#include "engine/checkpoint/requantize.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/dequantize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

std::vector<float> Waves(size_t count, float scale = 0.1f) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * std::sin(0.37f * static_cast<float>(i));
  return values;
}

// Returns a model with one tensor for each rule of requantisation.
GgufWriter Model() {
  GgufWriter writer = TinyModel("llama");
  writer.U32("general.file_type", 0).U32("split.count", 0);
  writer.F32Tensor("token_embd.weight", {256, 6}, Waves(256 * 6));
  writer.F32Tensor("blk.0.attn_q.weight", {256, 8}, Waves(256 * 8));
  writer.F32Tensor("blk.0.attn_k.weight", {96, 8}, Waves(96 * 8));
  writer.F32Tensor("blk.0.attn_v.weight", {40, 8}, Waves(40 * 8));
  writer.F32Tensor("blk.0.attn_norm.weight", {256}, Waves(256));
  writer.F32Tensor("blk.0.ffn_gate_inp.weight", {256, 4}, Waves(256 * 4));
  writer.F32Tensor("blk.0.attn_q.bias", {256}, Waves(256));
  writer.F32Tensor("blk.0.ffn_up_exps.weight", {256, 3, 2}, Waves(256 * 3 * 2));
  return writer;
}

GgufFile Open(const std::string& bytes) {
  auto file = GgufFile::Open(WriteTempFile("in.gguf", bytes));
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::string OutPath() {
  return absl::StrCat(::testing::TempDir(), "/",
                      ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".gguf");
}

std::string ContentsOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::map<std::string, GgmlType> TypesOf(const GgufFile& file) {
  std::map<std::string, GgmlType> types;
  for (const GgufTensor& tensor : file.tensors()) types[std::string(tensor.name)] = tensor.type;
  return types;
}

TEST(RequantizeTest, EachTensorTakesItsType) {
  const GgufFile in = Open(Model().Build());
  const auto report = Requantize(in, OutPath(), {.type = GgmlType::kQ4_K, .threads = 2});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto out = GgufFile::Open(OutPath());
  ASSERT_TRUE(out.ok()) << out.status();
  auto types = TypesOf(*out);
  EXPECT_EQ(types["token_embd.weight"], GgmlType::kQ6_K);  // tied, so it is also the head
  EXPECT_EQ(types["blk.0.attn_q.weight"], GgmlType::kQ4_K);
  EXPECT_EQ(types["blk.0.attn_k.weight"], GgmlType::kQ5_0);
  EXPECT_EQ(types["blk.0.attn_v.weight"], GgmlType::kF16);
  EXPECT_EQ(types["blk.0.attn_norm.weight"], GgmlType::kF32);
  EXPECT_EQ(types["blk.0.ffn_gate_inp.weight"], GgmlType::kF32);
  EXPECT_EQ(types["blk.0.attn_q.bias"], GgmlType::kF32);
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], GgmlType::kQ4_K);
  EXPECT_EQ(*out->Int("general.file_type"), 14);
  EXPECT_EQ(*out->Int("general.quantization_version"), 2);
  EXPECT_FALSE(out->HasKey("split.count"));
  EXPECT_EQ(*out->String("general.architecture"), "llama");
  EXPECT_EQ(report->tensors[2].fate, TensorFate::kFallback);
  EXPECT_EQ(report->tensors[4].fate, TensorFate::kKept);
  EXPECT_EQ(report->bytes_out, std::filesystem::file_size(OutPath()));

  const GgufTensor* q = out->FindTensor("blk.0.attn_q.weight");
  std::vector<float> values(256 * 8);
  Dequantize(q->type, q->data, absl::MakeSpan(values));
  const std::vector<float> truth = Waves(256 * 8);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], truth[i], 0.01);
  std::remove(OutPath().c_str());
}

TEST(RequantizeTest, RoutersAndDecaysOf16BitsBecomeF32) {
  GgufWriter writer = Model();
  const std::string ones = "\x80\x3f";  // BF16
  std::string row;
  while (row.size() < 256 * 4 * ones.size()) row += ones;
  const std::string names[] = {"blk.1.ffn_gate_inp.weight", "blk.1.ssm_alpha.weight",
                               "blk.1.ssm_beta.weight", "blk.1.ssm_ba.weight"};
  for (const std::string& name : names) writer.Tensor(name, GgmlType::kBF16, {256, 4}, row);
  const GgufFile in = Open(writer.Build());
  const auto report = Requantize(in, OutPath(), {.type = GgmlType::kQ8_0});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto out = GgufFile::Open(OutPath());
  ASSERT_TRUE(out.ok()) << out.status();
  for (const std::string& name : names) {
    const GgufTensor* tensor = out->FindTensor(name);
    ASSERT_EQ(tensor->type, GgmlType::kF32) << name;
    std::vector<float> values(256 * 4);
    Dequantize(tensor->type, tensor->data, absl::MakeSpan(values));
    EXPECT_EQ(values, std::vector<float>(256 * 4, 1.0f)) << name;
  }
  std::remove(OutPath().c_str());
}

TEST(RequantizeTest, ThreadsDoNotShow) {
  const GgufFile in = Open(Model().Build());
  RequantizeOptions options = {.type = GgmlType::kQ6_K, .existing = base::ExistingFile::kReplace};
  ASSERT_TRUE(Requantize(in, OutPath(), options).ok());
  const std::string one = ContentsOf(OutPath());
  options.threads = 3;
  ASSERT_TRUE(Requantize(in, OutPath(), options).ok());
  EXPECT_TRUE(one == ContentsOf(OutPath()));
  std::remove(OutPath().c_str());
}

TEST(RequantizeTest, TheSameTypeIsCopied) {
  const GgufFile in = Open(Model().Build());
  ASSERT_TRUE(Requantize(in, OutPath(), {.type = GgmlType::kQ8_0}).ok());
  const auto first = GgufFile::Open(OutPath());
  const std::string again = OutPath() + "2";
  ASSERT_TRUE(Requantize(*first, again, {.type = GgmlType::kQ8_0}).ok());
  EXPECT_TRUE(ContentsOf(OutPath()) == ContentsOf(again));
  std::remove(OutPath().c_str());
  std::remove(again.c_str());
}

TEST(RequantizeTest, BadNumbersAreNamedAndLeaveNothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), 70000.0f}) {
    GgufWriter writer = Model();
    std::vector<float> values = Waves(256 * 8);
    values[5 * 256 + 3] = bad;
    writer.F32Tensor("blk.0.ffn_down.weight", {256, 8}, values);
    const GgufFile in = Open(writer.Build());
    const absl::Status status =
        Requantize(in, OutPath(), {.type = GgmlType::kQ4_0, .threads = 2}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("blk.0.ffn_down.weight"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("row 5"));
    EXPECT_FALSE(std::filesystem::exists(OutPath()));
    // BF16 has the same range as float32, but infinities and NaNs are refused.
    const bool fits = std::isfinite(bad);
    EXPECT_EQ(Requantize(in, OutPath(), {.type = GgmlType::kBF16}).ok(), fits);
    std::remove(OutPath().c_str());
  }
}

TEST(RequantizeTest, TypesThatCannotBeWrittenOrReadAreRefused) {
  const GgufFile in = Open(Model().Build());
  EXPECT_THAT(std::string(Requantize(in, OutPath(), {.type = GgmlType::kIQ2_S}).status().message()),
              HasSubstr("IQ2_S"));
  GgufWriter writer = Model();
  writer.Tensor("strange", GgmlType::kIQ1_S, {256}, std::string(50, '\0'));
  const GgufFile strange = Open(writer.Build());
  EXPECT_THAT(
      std::string(Requantize(strange, OutPath(), {.type = GgmlType::kQ8_0}).status().message()),
      HasSubstr("strange"));
  EXPECT_FALSE(std::filesystem::exists(OutPath()));
}

TEST(RequantizeTest, ProgressRisesAndCanEndTheWork) {
  const GgufFile in = Open(Model().Build());
  double last = -1;
  RequantizeOptions options = {.type = GgmlType::kQ8_0};
  options.progress = [&](absl::string_view, double fraction) {
    EXPECT_GT(fraction, last);
    EXPECT_LT(fraction, 1);
    last = fraction;
    return fraction > 0.5 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(Requantize(in, OutPath(), options).status(), absl::CancelledError("enough"));
  EXPECT_FALSE(std::filesystem::exists(OutPath()));
}

// The embedding has six rows and the tokenizer has four tokens. llama.cpp requires equal numbers.
TEST(RequantizeTest, RowsOfTheEmbeddingWithoutATokenGetOne) {
  GgufWriter writer = Model();
  writer.I32s("tokenizer.ggml.token_type", {1, 1, 1, 3});
  const auto report = Requantize(Open(writer.Build()), OutPath(), {.type = GgmlType::kQ8_0});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto out = GgufFile::Open(OutPath());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(*out->Strings("tokenizer.ggml.tokens"),
              ::testing::ElementsAre("a", "b", "c", "<|end|>", "[PAD4]", "[PAD5]"));
  EXPECT_THAT(*out->Ints("tokenizer.ggml.token_type"), ::testing::ElementsAre(1, 1, 1, 3, 5, 5));
  EXPECT_FALSE(out->HasKey("tokenizer.ggml.scores"));
  std::remove(OutPath().c_str());
}

}  // namespace
}  // namespace tidepool::engine
