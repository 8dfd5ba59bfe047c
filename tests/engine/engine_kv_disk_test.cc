// An engine with a KV disk generates the same tokens and computes less.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kTokens = kernels::kKvBlockTokens;

std::vector<int32_t> Prompt(int64_t length, int32_t seed) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = static_cast<int32_t>((seed * 37 + i * 11) % 255);
  return tokens;
}

class EngineKvDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/engine_kv_disk_test.kv";
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  EngineOptions WithDisk(int64_t blocks, const fakes::ScriptedModelOptions& model = {}) const {
    EngineOptions options = MakeOptions();
    options.kv_memory_bytes = MemoryOfBlocks(blocks, model);
    options.kv_disk_path = path_;
    options.kv_disk_bytes = 4 << 20;
    return options;
  }

  std::string path_;
};

TEST_F(EngineKvDiskTest, TurnsThatLeftMemoryAreNotComputedAgain) {
  for (const int64_t window : {0, 40}) {
    std::filesystem::remove(path_);
    const fakes::ScriptedModelOptions model{.window = window};
    TestEngine roomy(MakeOptions(), model);
    TestEngine test(WithDisk(window > 0 ? 24 : 12, model), model);
    std::vector<std::vector<int32_t>> sessions;
    for (int i = 0; i < 6; ++i) sessions.push_back(Prompt(150, i));
    for (int turn = 0; turn < 3; ++turn) {
      for (std::vector<int32_t>& tokens : sessions) {
        GenerationRequest request = MakeRequest(tokens, 20);
        const Answer answer = test.Run(request);
        ASSERT_TRUE(answer.status.ok()) << answer.status;
        EXPECT_EQ(answer.tokens, roomy.Run(request).tokens) << turn;
        EXPECT_GE(answer.usage.cached_tokens, turn > 0 ? 4 * kTokens : 0) << turn;
        tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
      }
    }
    const EngineStats stats = test.engine->Stats();
    ASSERT_TRUE(stats.kv_disk.has_value());
    EXPECT_GT(stats.kv_disk->written_blocks, 0);
    EXPECT_GE(stats.kv_restores.restores, 12);
    EXPECT_GE(stats.kv_restores.tokens, 12 * 3 * kTokens);
    EXPECT_EQ(stats.kv_disk->damaged_blocks, 0);
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  }
}

TEST_F(EngineKvDiskTest, ANewProcessUsesTheKvOfTheOldOne) {
  const GenerationRequest request = MakeRequest(Prompt(200, 3), 30);
  Answer first;
  {
    TestEngine test(WithDisk(20));
    first = test.Run(request);
    EXPECT_EQ(first.usage.cached_tokens, 0);
  }
  TestEngine test(WithDisk(20));
  const Answer second = test.Run(request);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.usage.cached_tokens, 6 * kTokens);
  EXPECT_LT(test.model.rows(), 200);
  // KV of another model is not used.
  EngineOptions other = WithDisk(20);
  other.kv_disk_path = path_ + "2";
  std::filesystem::remove(other.kv_disk_path);
  std::filesystem::copy_file(path_, other.kv_disk_path);
  other.cache_seed = "another model";
  TestEngine other_engine(other);
  EXPECT_EQ(other_engine.Run(request).usage.cached_tokens, 0);
}

TEST_F(EngineKvDiskTest, ConcurrentRequestsGetTheSameAsAlone) {
  TestEngine roomy;
  TestEngine test(WithDisk(16));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> readers;
    std::vector<Answer> answers(12);
    for (int i = 0; i < 12; ++i) {
      readers.emplace_back([&, i] {
        GenerationRequest request = MakeRequest(Prompt(100 + 10 * (i % 5), i % 7), 25);
        request.sampling.temperature = 1;
        request.sampling.seed = i;
        answers[i] = test.Run(request);
      });
    }
    for (std::thread& reader : readers) reader.join();
    for (int i = 0; i < 12; ++i) {
      GenerationRequest request = MakeRequest(Prompt(100 + 10 * (i % 5), i % 7), 25);
      request.sampling.temperature = 1;
      request.sampling.seed = i;
      EXPECT_EQ(answers[i].tokens, roomy.Run(request).tokens) << i;
    }
  }
  EXPECT_GT(test.engine->Stats().kv_restores.tokens, 0);
}

TEST_F(EngineKvDiskTest, ReportsFaultsOfTheDiskCache) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  fakes::ScriptedModel model;
  fakes::ManualClock clock;
  const auto make = [&](const EngineOptions& options) {
    return Engine::Create(&model, tokenizer.get(), &clock, options);
  };
  EngineOptions small = WithDisk(8);
  small.kv_disk_bytes = 5000;
  const auto too_small = make(small);
  EXPECT_EQ(too_small.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(too_small.status().message().find("--kv-disk"), absl::string_view::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto first = make(WithDisk(8));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(make(WithDisk(8)).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tidepool::engine
