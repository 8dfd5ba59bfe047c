// An engine whose model has recurrent states. Other requests do not change a response, and stored
// states are used again.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/kv/kv_layout.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kTokens = kernels::kKvBlockTokens;
const fakes::ScriptedModelOptions kHybrid = {.layers = 2, .state_layers = 2};

std::vector<int32_t> Prompt(int64_t length, int32_t seed) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = static_cast<int32_t>((seed * 37 + i * 11) % 255);
  return tokens;
}

std::vector<int32_t> Joined(std::vector<int32_t> head, const std::vector<int32_t>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

size_t Memory(int64_t blocks) {
  const fakes::ScriptedModel model(kHybrid);
  return blocks * KvBlockBytes(model.kv_specs());
}

EngineOptions WithBlocks(int64_t blocks) {
  EngineOptions options = MakeOptions();
  options.kv_memory_bytes = Memory(blocks);
  return options;
}

int64_t StateBlocks() {
  const fakes::ScriptedModel model(kHybrid);
  return MakeKvLayout(model.kv_specs()).state_parts;
}

class EngineStateTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/engine_state_test.kv";
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Returns the response of an engine that only has this request.
  static std::vector<int32_t> Undisturbed(const GenerationRequest& request) {
    EngineOptions options = WithBlocks(600);
    options.limits = {.rows = 512, .logit_rows = 32};
    options.prefill_chunk = 512;
    TestEngine alone(options, kHybrid);
    return alone.Run(request).tokens;
  }

  std::string path_;
};

TEST_F(EngineStateTest, ResponsesDoNotDependOnChunks) {
  const GenerationRequest request = MakeRequest(Prompt(150, 1), 40);
  const std::vector<int32_t> expected = Undisturbed(request);
  for (const int64_t chunk : {1, 5, 31, 32, 33, 64}) {
    EngineOptions options = WithBlocks(200);
    options.prefill_chunk = chunk;
    TestEngine test(options, kHybrid);
    EXPECT_EQ(test.Run(request).tokens, expected) << chunk;
  }
}

TEST_F(EngineStateTest, TheSecondTurnFindsTheFirst) {
  TestEngine test(WithBlocks(600), kHybrid);
  std::vector<int32_t> log = Prompt(100, 1);
  for (int turn = 0; turn < 6; ++turn) {
    const GenerationRequest request = MakeRequest(log, 10 + 9 * turn);
    const Answer answer = test.Run(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.tokens, Undisturbed(request)) << turn;
    if (turn > 0) {
      EXPECT_GE(answer.usage.cached_tokens, static_cast<int64_t>(log.size()) - 64) << turn;
    }
    log = Joined(std::move(log), answer.tokens);
    log = Joined(std::move(log), Prompt(3 + turn, 50 + turn));
  }
}

// When the other sessions are submitted.
enum class Arrival : uint8_t { kBefore, kDuringFirstPass, kAfterFirstResponse };

// 50 sessions have prompts that begin with the same 1,000 tokens. With chunks of 2,048 rows, a pass
// includes the position where the prompts differ. When the pass begins, later sessions are not
// known yet.
class SharedPromptTest : public EngineStateTest,
                         public testing::WithParamInterface<std::tuple<int64_t, Arrival>> {};

TEST_P(SharedPromptTest, FiftySessionsComputeItOnce) {
  const auto [chunk, arrival] = GetParam();
  constexpr int kSessions = 50;
  constexpr int64_t kShared = 1000;
  constexpr int64_t kOwn = 200;
  constexpr int64_t kOutputs = 5;
  EngineOptions options = WithBlocks(4000);
  options.limits = {.rows = chunk, .logit_rows = 64};
  options.prefill_chunk = chunk;
  options.max_sequences = kSessions;
  TestEngine test(options, kHybrid);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<GenerationRequest> requests;
  if (arrival != Arrival::kAfterFirstResponse) test.model.Hold();
  // The sessions are submitted during the pass of another request.
  if (arrival == Arrival::kBefore) {
    streams.push_back(test.Submit(MakeRequest({1}, 1)));
    test.model.WaitForForwards(1);
  }
  for (int i = 0; i < kSessions; ++i) {
    requests.push_back(MakeRequest(Joined(Prompt(kShared, 1), Prompt(kOwn, i + 2)), kOutputs));
    streams.push_back(test.Submit(requests.back()));
    if (i > 0) continue;
    if (arrival == Arrival::kDuringFirstPass) test.model.WaitForForwards(1);
    if (arrival == Arrival::kAfterFirstResponse) {
      EXPECT_EQ(ReadAll(streams.back().get()).tokens, Undisturbed(requests.back()));
      streams.clear();
    }
  }
  test.model.Release();
  for (size_t i = 0; i < streams.size(); ++i) {
    const Answer answer = ReadAll(streams[i].get());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    const size_t request = i + requests.size() - streams.size();
    if (i % 10 == 1) {
      EXPECT_EQ(answer.tokens, Undisturbed(requests[request])) << i;
    }
  }
  const int64_t found = kShared / kTokens * kTokens;
  const int64_t prompt_rows = kShared + kOwn + (kSessions - 1) * (kShared + kOwn - found);
  const int64_t first = arrival == Arrival::kBefore ? 1 : 0;
  EXPECT_EQ(test.model.rows(), first + prompt_rows + kSessions * (kOutputs - 1));
}

INSTANTIATE_TEST_SUITE_P(Chunks, SharedPromptTest,
                         testing::Combine(testing::Values(512, 2048),
                                          testing::Values(Arrival::kBefore,
                                                          Arrival::kDuringFirstPass,
                                                          Arrival::kAfterFirstResponse)));

TEST_F(EngineStateTest, AForkContinuesFromTheLastCheckpointBeforeIt) {
  TestEngine test(WithBlocks(600), kHybrid);
  const std::vector<int32_t> prompt = Prompt(200, 1);
  const Answer first = test.Run(MakeRequest(prompt, 100));
  const std::vector<int32_t> log = Joined(prompt, first.tokens);
  // Each request continues a truncated log in another way.
  for (int64_t length = 20; length < 300; length += 7) {
    std::vector<int32_t> fork(log.begin(), log.begin() + length);
    fork.push_back(7);
    const GenerationRequest request = MakeRequest(fork, 8);
    const Answer answer = test.Run(request);
    EXPECT_EQ(answer.tokens, Undisturbed(request)) << length;
    if (length >= 200) {
      EXPECT_GE(answer.usage.cached_tokens, 5 * kTokens) << length;
    }
  }
}

// After each token of a response, a request of higher priority preempts it.
TEST_F(EngineStateTest, APreemptedResponseIsTheSame) {
  const GenerationRequest request = MakeRequest(Prompt(70, 1), 100);
  const std::vector<int32_t> expected = Undisturbed(request);
  for (const int64_t blocks : {200, 40}) {
    EngineOptions options = WithBlocks(blocks);
    options.max_sequences = 1;
    TestEngine test(options, kHybrid);
    GenerationRequest slow = request;
    slow.credit = 1;
    const std::unique_ptr<Stream> stream = test.Submit(slow);
    std::vector<int32_t> tokens;
    while (tokens.size() < 100) {
      const absl::StatusOr<StreamChunk> chunk = stream->Next();
      ASSERT_TRUE(chunk.ok()) << chunk.status();
      tokens.insert(tokens.end(), chunk->token_ids.begin(), chunk->token_ids.end());
      GenerationRequest other = MakeRequest(Prompt(40, static_cast<int32_t>(tokens.size())), 2);
      other.priority = 1;
      EXPECT_TRUE(test.Run(other).status.ok());
      stream->AddCredit(chunk->token_ids.size());
    }
    EXPECT_EQ(tokens, expected);
    EXPECT_GE(test.engine->Stats().preemptions, 99);
    EXPECT_EQ(test.engine->Stats().kv_blocks_free, test.engine->Stats().kv_blocks_total);
  }
}

// Many sequences in a cache that only has room for a few.
TEST_F(EngineStateTest, SequencesThatDoNotFitWaitOrArePreempted) {
  EngineOptions options = WithBlocks(60);
  options.max_sequences = 32;
  TestEngine test(options, kHybrid);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 64; ++i) {
    requests.push_back(MakeRequest(Prompt(30 + 5 * (i % 9), i), 40 + i % 30));
    streams.push_back(test.Submit(requests.back()));
  }
  for (int i = 0; i < 64; ++i) {
    const Answer answer = ReadAll(streams[i].get());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    if (i % 8 == 0) {
      EXPECT_EQ(answer.tokens, Undisturbed(requests[i])) << i;
    }
  }
  const EngineStats stats = test.engine->Stats();
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

// A step fails, and the engine computes its sequences again, one by one. A sequence that does not
// fail continues from the state before the step.
TEST_F(EngineStateTest, AFailedStepDoesNotAdvanceTheStatesOfOthers) {
  const GenerationRequest healthy = MakeRequest(Prompt(90, 1), 60);
  const std::vector<int32_t> expected = Undisturbed(healthy);
  for (int64_t failing_step = 1; failing_step < 8; failing_step += 2) {
    TestEngine test(WithBlocks(300), kHybrid);
    test.model.Hold();
    const std::unique_ptr<Stream> first = test.Submit(healthy);
    const std::unique_ptr<Stream> second = test.Submit(MakeRequest(Prompt(80, 2), 60));
    test.model.WaitForForwards(1);
    test.model.Allow(failing_step);
    test.model.WaitForForwards(failing_step + 1);
    test.model.SetFailureOf(1, absl::UnavailableError("an expert cannot be read"));
    test.model.Release();
    EXPECT_EQ(ReadAll(second.get()).status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReadAll(first.get()).tokens, expected) << failing_step;
  }
}

TEST_F(EngineStateTest, ANewProcessFindsTheStatesOnTheDisk) {
  EngineOptions options = WithBlocks(60);
  options.kv_disk_path = path_;
  options.kv_disk_bytes = 4 << 20;
  std::vector<int32_t> log = Prompt(200, 3);
  for (int turn = 0; turn < 3; ++turn) {
    TestEngine test(options, kHybrid);
    const GenerationRequest request = MakeRequest(log, 50);
    const Answer answer = test.Run(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.tokens, Undisturbed(request)) << turn;
    if (turn > 0) {
      EXPECT_GE(answer.usage.cached_tokens, static_cast<int64_t>(log.size()) - 64) << turn;
      EXPECT_GE(test.engine->Stats().kv_restores.tokens, static_cast<int64_t>(log.size()) - 64);
    }
    log = Joined(std::move(log), answer.tokens);
    log.push_back(5);
  }
}

TEST_F(EngineStateTest, TurnsThatLeftMemoryAreReadFromTheDisk) {
  EngineOptions options = WithBlocks(40);
  options.kv_disk_path = path_;
  options.kv_disk_bytes = 4 << 20;
  TestEngine test(options, kHybrid);
  std::vector<std::vector<int32_t>> sessions;
  for (int i = 0; i < 6; ++i) sessions.push_back(Prompt(150, i));
  for (int turn = 0; turn < 3; ++turn) {
    for (std::vector<int32_t>& tokens : sessions) {
      const GenerationRequest request = MakeRequest(tokens, 20);
      const Answer answer = test.Run(request);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      EXPECT_EQ(answer.tokens, Undisturbed(request)) << turn;
      if (turn > 0) {
        EXPECT_GE(answer.usage.cached_tokens, static_cast<int64_t>(tokens.size()) - 64) << turn;
      }
      tokens = Joined(std::move(tokens), answer.tokens);
    }
  }
  const EngineStats stats = test.engine->Stats();
  EXPECT_GE(stats.kv_restores.restores, 10);
  EXPECT_EQ(stats.kv_disk->damaged_blocks, 0);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

// The disk only gets checkpoints that a later request can use.
TEST_F(EngineStateTest, ALongResponseWritesFewStates) {
  EngineOptions options = WithBlocks(60);
  options.kv_disk_path = path_;
  options.kv_disk_bytes = 4 << 20;
  TestEngine test(options, kHybrid);
  ASSERT_TRUE(test.Run(MakeRequest(Prompt(100, 1), 700)).status.ok());
  ASSERT_TRUE(test.Run(MakeRequest(Prompt(100, 2), 700)).status.ok());
  const int64_t kv = (800 / kTokens + 1) * 2;
  EXPECT_LE(test.engine->Stats().kv_disk->written_blocks, kv + 4 * StateBlocks());
}

}  // namespace
}  // namespace tidepool::engine
