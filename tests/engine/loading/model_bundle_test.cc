#include "engine/loading/model_bundle.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"
#include "tests/engine/model/gguf_edit.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

constexpr char kModel[] = "tests/golden/tiny/qwen3moe_q4_1.gguf";

std::unique_ptr<ModelBundle> MustLoad(const std::string& path, const LoadOptions& options) {
  auto bundle = LoadModel(path, options);
  EXPECT_TRUE(bundle.ok()) << bundle.status();
  return *std::move(bundle);
}

TEST(ModelBundleTest, HoldsAllThatACheckpointBecomes) {
  const auto bundle = MustLoad(kModel, {.threads = 2});
  EXPECT_EQ(bundle->name, "tiny qwen3moe_q4_1");
  EXPECT_EQ(bundle->config.architecture, "qwen3moe");
  EXPECT_EQ(bundle->digest.size(), 32u);
  EXPECT_EQ(bundle->threads, 2);
  EXPECT_EQ(bundle->kv_dtype, DType::kF16);
  EXPECT_EQ(bundle->model->kv_specs()[0].dtype, DType::kF16);
  EXPECT_EQ(bundle->backend->threads(), 2);
  EXPECT_EQ(bundle->model->vocab_size(), 288);
  EXPECT_EQ(bundle->tokenizer->vocab_size(), 288);
  EXPECT_EQ(bundle->weight_bytes, bundle->weights->weight_bytes());
  EXPECT_GT(bundle->weight_bytes, 60'000u);
  const auto ids = bundle->tokenizer->Encode("on the", SpecialTokens::kAsText, AddBos::kNo);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_LT(ids->size(), 6u);
}

// The packing threads have ended. Only the backend's threads (without the caller) remain.
TEST(ModelBundleTest, OnlyTheBackendKeepsThreads) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto before = threads();
  const auto bundle = MustLoad(kModel, {.threads = 4});
  EXPECT_EQ(threads(), before + 3);
}

TEST(ModelBundleTest, TheChatTemplateIsTheFiles) {
  const auto bundle = MustLoad(kModel, {});
  ASSERT_TRUE(bundle->chat_template.ok()) << bundle->chat_template.status();
  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "Hi"}}};
  const auto text = bundle->chat_template->RenderText(inputs);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ModelBundleTest, ExactModeKeepsFloat32) {
  const auto bundle = MustLoad(kModel, {.precision = Precision::kExact});
  EXPECT_EQ(bundle->kv_dtype, DType::kF32);
  EXPECT_EQ(bundle->backend->precision(), Precision::kExact);
  EXPECT_EQ(bundle->model->kv_specs()[0].dtype, DType::kF32);
}

TEST(ModelBundleTest, NumericsIdDependsOnlyOnThingsThatChangeBits) {
  const std::string id = MustLoad(kModel, {.threads = 1})->numerics_id;
  EXPECT_EQ(MustLoad(kModel, {.threads = 2, .isa = kernels::Isa::kPortable})->numerics_id, id);
  const std::string bf16 = MustLoad(kModel, {.kv_dtype = DType::kBF16})->numerics_id;
  const std::string exact = MustLoad(kModel, {.precision = Precision::kExact})->numerics_id;
  const std::string f32 = MustLoad(kModel, {.kv_dtype = DType::kF32})->numerics_id;
  EXPECT_NE(bf16, id);
  EXPECT_NE(exact, id);
  EXPECT_NE(exact, f32);
}

// The tiny qwen3moe has heads of 32 dimensions, the tiny llama of 8.
TEST(ModelBundleTest, QuantisedKvNeedsWholeBlocks) {
  const auto bundle = MustLoad(kModel, {.kv_dtype = DType::kQ8_0});
  EXPECT_EQ(bundle->model->kv_specs()[0].dtype, DType::kQ8_0);
  const std::string path = "tests/golden/tiny/llama_f32.gguf";
  const absl::Status status = LoadModel(path, {.kv_dtype = DType::kQ8_0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "a multiple of 32")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
}

TEST(ModelBundleTest, DigestsOfDifferentFilesDiffer) {
  EXPECT_NE(MustLoad(kModel, {})->digest,
            MustLoad("tests/golden/tiny/qwen3moe_f32.gguf", {})->digest);
}

TEST(ModelBundleTest, ProgressEndsAtOne) {
  std::vector<double> fractions;
  MustLoad(kModel,
           {.progress = [&](LoadStage, double fraction) { fractions.push_back(fraction); }});
  ASSERT_FALSE(fractions.empty());
  EXPECT_DOUBLE_EQ(fractions.back(), 1);
}

void ExpectError(const std::string& path, const LoadOptions& options, absl::StatusCode code,
                 const std::string& words) {
  const absl::Status status = LoadModel(path, options).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
}

TEST(ModelBundleTest, BadOptionsAreNamed) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectError(kModel, {.threads = -1}, invalid, "threads is -1");
  ExpectError(kModel, {.kv_dtype = DType::kQ4_0}, invalid, "the KV type is Q4_0");
  ExpectError(kModel, {.precision = Precision::kExact, .kv_dtype = DType::kF16}, invalid,
              "the KV type is F16, expected F32 in exact mode");
}

TEST(ModelBundleTest, BadFilesAreNamed) {
  ExpectError("nowhere.gguf", {}, absl::StatusCode::kNotFound, "nowhere.gguf");
  ExpectError(WriteTempFile("text.gguf", "not a model at all, but long enough to look at"), {},
              absl::StatusCode::kInvalidArgument, "text.gguf");
  // GgufEdit leaves the tokenizer out.
  ExpectError(GgufEdit(kModel).Write("no_tokenizer.gguf"), {}, absl::StatusCode::kInvalidArgument,
              "tokenizer.ggml.model");
}

}  // namespace
}  // namespace tidepool::engine
