// An engine whose model computes, for one token, a key that f16 cannot represent: requests with
// this token fail, and no other request uses its KV.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;

constexpr int32_t kBadToken = 77;
constexpr int64_t kHidden = 64;
constexpr int64_t kBlock = kernels::kKvBlockTokens;

std::vector<float> Floats(const EditableTensor& tensor) {
  CHECK(tensor.type == GgmlType::kF32);
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

// Only the bad token has a value in the embedding's first dimension, and the first layer's norm
// amplifies it.
std::string WriteModel() {
  GgufEdit edit("tests/golden/tiny/llama_f32.gguf");
  EditableTensor& embedding = edit.at("token_embd.weight");
  std::vector<float> rows = Floats(embedding);
  CHECK_EQ(static_cast<int64_t>(embedding.dims[0]), kHidden);
  for (size_t token = 0; token < rows.size() / kHidden; ++token) {
    rows[token * kHidden] = token == kBadToken ? 1 : 0;
  }
  embedding.data = BytesOf(rows);
  EditableTensor& norm = edit.at("blk.0.attn_norm.weight");
  std::vector<float> gains = Floats(norm);
  gains[0] = 1e8f;
  norm.data = BytesOf(gains);
  return edit.Write("large_key.gguf");
}

std::vector<int32_t> Prompt(int64_t length, bool bad) {
  std::vector<int32_t> ids(length);
  for (int64_t i = 0; i < length; ++i) ids[i] = static_cast<int32_t>(3 + i * 7 % 60);
  if (bad) ids[kBlock / 2] = kBadToken;
  return ids;
}

class EngineKvValuesTest : public testing::Test {
 protected:
  EngineKvValuesTest() { std::filesystem::remove(path_); }
  ~EngineKvValuesTest() override { std::filesystem::remove(path_); }

  // Starts an engine that computes prompts in chunks, most of which have no logits.
  void Start(DType kv_dtype) {
    engine_.reset();
    loaded_.emplace(Load(model_, {.precision = kernels::Precision::kFast, .kv_dtype = kv_dtype}));
    EngineOptions options = MakeOptions();
    options.kv_memory_bytes = 16 << 20;
    options.context_length = 512;
    options.prefill_chunk = kBlock;
    options.kv_disk_path = path_;
    options.kv_disk_bytes = 8 << 20;
    options.cache_seed = absl::StrCat("values ", static_cast<int>(kv_dtype));
    auto made =
        Engine::Create(loaded_->model.get(), tokenizer_.get(), &base::Clock::Real(), options);
    CHECK_OK(made.status());
    engine_ = *std::move(made);
  }

  Answer Run(bool bad) {
    return ReadAll(engine_->Submit(MakeRequest(Prompt(4 * kBlock, bad), 4)).value().get());
  }

  const std::string model_ = WriteModel();
  const std::string path_ = testing::TempDir() + "/engine_kv_values_test.kv";
  const std::unique_ptr<Tokenizer> tokenizer_ = fakes::MakeByteTokenizer();
  std::optional<LoadedModel> loaded_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineKvValuesTest, AKeyPastTheKvTypeFailsItsRequestAndIsNotIndexed) {
  Start(DType::kF16);
  for (int i = 0; i < 2; ++i) {
    const Answer answer = Run(/*bad=*/true);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal) << answer.status;
    EXPECT_TRUE(absl::StrContains(answer.status.message(), "layer 0 computed a key of"))
        << answer.status;
    EXPECT_TRUE(absl::StrContains(answer.status.message(), "F16")) << answer.status;
    EXPECT_EQ(engine_->Stats().kv_blocks_cached, 0);
    EXPECT_TRUE(engine_->PrefixDigests().empty());
  }
  // The KV that was spilled at the end does not contain the bad token's KV.
  Start(DType::kF16);
  EXPECT_EQ(engine_->Stats().kv_disk->blocks, 0);
}

TEST_F(EngineKvValuesTest, OthersAreServedAsBefore) {
  Start(DType::kF16);
  const Answer alone = Run(/*bad=*/false);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  Start(DType::kF16);
  const auto bad = engine_->Submit(MakeRequest(Prompt(4 * kBlock, true), 4)).value();
  const auto good = engine_->Submit(MakeRequest(Prompt(4 * kBlock, false), 4)).value();
  EXPECT_FALSE(ReadAll(bad.get()).status.ok());
  const Answer answer = ReadAll(good.get());
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens, alone.tokens);
}

TEST_F(EngineKvValuesTest, ATypeThatHoldsTheKeyTakesTheRequest) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    Start(dtype);
    const Answer answer = Run(/*bad=*/true);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_GT(engine_->Stats().kv_blocks_cached, 0);
  }
}

}  // namespace
}  // namespace tidepool::engine
