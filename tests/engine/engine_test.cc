#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <thread>

#include "engine/kv/block_hash.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

using fakes::ByteTokens;

// Returns a prompt. Each `which` has another prompt.
std::vector<int32_t> Prompt(int64_t length, int32_t which) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = (which * 37 + i * i) % 256;
  return tokens;
}

TEST(EngineTest, AnswersWithUsage) {
  TestEngine test;
  test.model.SetScript(fakes::Replies(3, ByteTokens("Hello"), fakes::kEndToken));
  GenerationRequest request = MakeRequest(ByteTokens("abc"), 100);
  request.stopping.ignore_eos = false;
  const Answer answer = test.Run(request);
  std::vector<int32_t> expected = ByteTokens("Hello");
  expected.push_back(fakes::kEndToken);
  EXPECT_EQ(answer.tokens, expected);
  EXPECT_EQ(answer.text, "Hello");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.usage.prompt_tokens, 3);
  EXPECT_EQ(answer.usage.completion_tokens, 6);
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  EXPECT_EQ(answer.usage.expert_hits, 6 * 3);
  EXPECT_EQ(answer.usage.expert_misses, 6);
  EXPECT_EQ(answer.chunks.front().position, 0);
  const EngineStats stats = test.engine->Stats();
  EXPECT_EQ(stats.requests_finished, 1);
  EXPECT_EQ(stats.prompt_tokens, 3);
  EXPECT_EQ(stats.generated_tokens, 6);
  EXPECT_EQ(stats.sequences_running, 0);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  EXPECT_EQ(stats.steps, 6);
  EXPECT_EQ(test.model.rows(), 3 + 5);
}

TEST(EngineTest, StopsAtMaxTokensAndAtTheContext) {
  EngineOptions options = MakeOptions();
  options.context_length = 20;
  TestEngine test(options);
  Answer answer = test.Run(MakeRequest(Prompt(10, 1), 4));
  EXPECT_EQ(answer.tokens.size(), 4u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  answer = test.Run(MakeRequest(Prompt(10, 1), 100));
  EXPECT_EQ(answer.tokens.size(), 10u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(test.engine->Submit(MakeRequest(Prompt(20, 1), 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EngineTest, ChunkedPrefillGivesTheSameTokens) {
  TestEngine whole;
  const Answer expected = whole.Run(MakeRequest(Prompt(60, 1), 20));
  EXPECT_EQ(whole.model.largest_batch(), 48);
  for (const int64_t chunk : {1, 7, 33, 1000}) {
    EngineOptions options = MakeOptions();
    options.prefill_chunk = chunk;
    TestEngine test(options);
    EXPECT_EQ(test.Run(MakeRequest(Prompt(60, 1), 20)).tokens, expected.tokens) << chunk;
  }
}

TEST(EngineTest, ReusesPrefixes) {
  TestEngine test;
  const std::vector<int32_t> prompt = Prompt(100, 1);
  const Answer first = test.Run(MakeRequest(prompt, 40));
  const int64_t rows = test.model.rows();
  EXPECT_EQ(rows, 100 + 39);
  const Answer again = test.Run(MakeRequest(prompt, 40));
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.usage.cached_tokens, 96);
  EXPECT_EQ(test.model.rows() - rows, 4 + 39);

  // The prompt of the next turn contains the first response.
  std::vector<int32_t> longer = prompt;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<int32_t> turn = Prompt(10, 5);
  longer.insert(longer.end(), turn.begin(), turn.end());
  const Answer second = test.Run(MakeRequest(longer, 10));
  EXPECT_EQ(second.usage.cached_tokens, 128);  // 139 tokens have KV, which are four whole blocks
  TestEngine fresh;
  EXPECT_EQ(fresh.Run(MakeRequest(longer, 10)).tokens, second.tokens);

  GenerationRequest salted = MakeRequest(prompt, 40);
  salted.cache_salt = "mallory";
  EXPECT_EQ(test.Run(salted).usage.cached_tokens, 0);
  EXPECT_EQ(test.engine->Stats().cached_prompt_tokens, 96 + 128);
}

TEST(EngineTest, NamesCachedPrefixes) {
  TestEngine test;
  const std::vector<int32_t> prompt = Prompt(70, 1);
  const Answer answer = test.Run(MakeRequest(prompt, 1));
  EXPECT_EQ(test.engine->PrefixDigests(),
            (std::vector<uint64_t>{BlockDigests(prompt, "test", "").back()}));
}

// The output of each stream must not depend on concurrent streams.
TEST(EngineTest, ManyStreamsEqualTheirSoloRuns) {
  for (const int64_t window : {0, 50}) {
    const fakes::ScriptedModelOptions model{.window = window};
    constexpr int kStreams = 32;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < kStreams; ++i) {
      GenerationRequest request = MakeRequest(Prompt(1 + i * 11 % 150, i % 5), 5 + i * 7 % 90);
      request.sampling.temperature = i % 3 == 0 ? 0 : 0.7f;
      request.sampling.seed = i;
      request.sampling.repetition_penalty = i % 4 == 0 ? 1.3f : 1;
      requests.push_back(request);
    }
    TestEngine together(MakeOptions(), model);
    std::vector<Answer> answers(kStreams);
    std::vector<std::thread> readers;
    for (int i = 0; i < kStreams; ++i) {
      readers.emplace_back([&, i] { answers[i] = together.Run(requests[i]); });
    }
    for (std::thread& reader : readers) reader.join();
    TestEngine alone(MakeOptions(), model);
    for (int i = 0; i < kStreams; ++i) {
      const Answer solo = alone.Run(requests[i]);
      EXPECT_EQ(answers[i].tokens, solo.tokens) << i;
      EXPECT_EQ(answers[i].text, solo.text) << i;
      EXPECT_EQ(answers[i].finish, solo.finish) << i;
    }
    const EngineStats stats = together.engine->Stats();
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
    EXPECT_EQ(stats.requests_finished, kStreams);
  }
}

TEST(EngineTest, PreemptionGivesTheSameTokens) {
  for (const int64_t window : {0, 40}) {
    const fakes::ScriptedModelOptions model{.window = window};
    EngineOptions small = MakeOptions();
    small.kv_memory_bytes = MemoryOfBlocks(window > 0 ? 24 : 12, model);
    TestEngine test(small, model);
    test.model.Hold();
    constexpr int kStreams = 6;
    std::vector<GenerationRequest> requests;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < kStreams; ++i) {
      GenerationRequest request = MakeRequest(Prompt(20 + i, i), 120);
      request.priority = i % 2;
      request.sampling.temperature = 1;
      request.sampling.seed = i;
      requests.push_back(request);
      streams.push_back(test.Submit(request));
    }
    test.model.Release();
    TestEngine roomy(MakeOptions(), model);
    for (int i = 0; i < kStreams; ++i) {
      const Answer answer = ReadAll(streams[i].get());
      EXPECT_EQ(answer.tokens, roomy.Run(requests[i]).tokens) << i;
      EXPECT_EQ(answer.usage.completion_tokens, 120);
    }
    const EngineStats stats = test.engine->Stats();
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
    EXPECT_EQ(stats.generated_tokens, kStreams * 120);
  }
}

TEST(EngineTest, ALowerPriorityThatHadToGiveWayGivesTheSameTokens) {
  EngineOptions small = MakeOptions();
  small.kv_memory_bytes = MemoryOfBlocks(8);
  TestEngine test(small);
  test.model.Hold();
  GenerationRequest low = MakeRequest(Prompt(100, 1), 100);
  low.sampling.temperature = 1;
  low.sampling.seed = 5;
  auto slow = test.Submit(low);
  // The slow request is in the middle of its response when another request arrives, which needs
  // most of the memory.
  test.model.Allow(20);
  test.model.WaitForForwards(21);
  GenerationRequest high = MakeRequest(Prompt(180, 2), 4);
  high.priority = 1;
  auto fast = test.Submit(high);
  test.model.Release();
  EXPECT_EQ(ReadAll(fast.get()).tokens.size(), 4);
  const Answer answer = ReadAll(slow.get());
  EXPECT_GE(test.engine->Stats().preemptions, 1);
  TestEngine roomy;
  EXPECT_EQ(answer.tokens, roomy.Run(low).tokens);
}

TEST(EngineTest, TwoEnginesShareNothing) {
  TestEngine a;
  TestEngine b;
  a.model.SetScript(fakes::Replies(1, ByteTokens("aaaa"), 'a'));
  b.model.SetScript(fakes::Replies(1, ByteTokens("bbbb"), 'b'));
  auto stream_a = a.Submit(MakeRequest({1}, 200));
  auto stream_b = b.Submit(MakeRequest({1}, 200));
  EXPECT_EQ(ReadAll(stream_a.get()).text, std::string(200, 'a'));
  EXPECT_EQ(ReadAll(stream_b.get()).text, std::string(200, 'b'));
  EXPECT_EQ(a.engine->Stats().requests_finished, 1);
  EXPECT_EQ(b.engine->Stats().requests_finished, 1);
}

TEST(EngineTest, SeedsAndPositionsDrawTheTokens) {
  TestEngine test;
  GenerationRequest request = MakeRequest(Prompt(10, 1), 30);
  request.sampling.temperature = 1.5;
  request.sampling.seed = 7;
  const Answer first = test.Run(request);
  EXPECT_EQ(test.Run(request).tokens, first.tokens);
  request.choice = 1;
  const Answer choice = test.Run(request);
  EXPECT_NE(choice.tokens, first.tokens);
  request.choice = 0;
  request.sampling.seed = 8;
  const Answer seed = test.Run(request);
  EXPECT_NE(seed.tokens, first.tokens);
  EXPECT_NE(seed.tokens, choice.tokens);
  // Every position has its own random draw.
  test.model.SetScript([](absl::Span<const int32_t>, absl::Span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
  });
  const Answer flat = test.Run(request);
  EXPECT_GT(std::set<int32_t>(flat.tokens.begin(), flat.tokens.end()).size(), 20u);
}

TEST(EngineTest, ReportsLogprobs) {
  TestEngine test;
  GenerationRequest request = MakeRequest(Prompt(5, 1), 8);
  request.logprobs = true;
  request.top_logprobs = 3;
  const Answer answer = test.Run(request);
  ASSERT_EQ(answer.logprobs.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(answer.logprobs[i].token_id, answer.tokens[i]);
    ASSERT_EQ(answer.logprobs[i].top.size(), 3u);
    EXPECT_EQ(answer.logprobs[i].top[0].first, answer.tokens[i]);  // greedy
    EXPECT_EQ(answer.logprobs[i].top[0].second, answer.logprobs[i].logprob);
    EXPECT_GE(answer.logprobs[i].top[0].second, answer.logprobs[i].top[1].second);
  }
}

TEST(EngineTest, RejectsBadRequests) {
  EngineOptions options = MakeOptions();
  options.kv_memory_bytes = MemoryOfBlocks(4);
  TestEngine test(options);
  const auto expect = [&](absl::StatusCode code, absl::string_view part,
                          const std::function<void(GenerationRequest*)>& change) {
    GenerationRequest request = MakeRequest(Prompt(10, 1), 4);
    change(&request);
    const absl::Status status = test.engine->Submit(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect(kInvalid, "empty", [](auto* r) { r->token_ids.clear(); });
  expect(kInvalid, "prompt_length", [](auto* r) { r->prompt_length = 0; });
  expect(kInvalid, "prompt_length", [](auto* r) { r->prompt_length = 11; });
  expect(kInvalid, "token_ids", [](auto* r) { r->token_ids[3] = -1; });
  expect(kInvalid, "token_ids", [](auto* r) { r->token_ids[3] = fakes::kByteVocabSize; });
  expect(kInvalid, "max_tokens", [](auto* r) { r->stopping.max_tokens = -1; });
  expect(kInvalid, "temperature", [](auto* r) { r->sampling.temperature = NAN; });
  expect(kInvalid, "top_logprobs", [](auto* r) { r->top_logprobs = 5; });
  expect(kInvalid, "context", [](auto* r) {
    r->token_ids = Prompt(5000, 1);
    r->prompt_length = 5000;
  });
  expect(absl::StatusCode::kResourceExhausted, "--kv-memory", [](auto* r) {
    r->token_ids = Prompt(129, 1);
    r->prompt_length = 129;
  });
  EXPECT_EQ(test.Run(MakeRequest(Prompt(127, 1), 1)).tokens.size(), 1u);
}

TEST(EngineTest, ASequenceThatOutgrowsTheKvMemoryEnds) {
  EngineOptions options = MakeOptions();
  options.kv_memory_bytes = MemoryOfBlocks(2);
  TestEngine test(options);
  const Answer answer = test.Run(MakeRequest(Prompt(10, 1), 100));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(answer.status.message().find("--kv-memory"), absl::string_view::npos);
  EXPECT_EQ(answer.tokens.size(), 64u - 10 + 1);  // the last token needs no slot
  EXPECT_EQ(test.Run(MakeRequest(Prompt(10, 1), 10)).tokens.size(), 10u);
}

TEST(EngineTest, AFailedForwardFailsItsBatchOnly) {
  TestEngine test;
  test.model.SetFailure(absl::UnknownError("expert 3 of layer 1 cannot be read"));
  const Answer answer = test.Run(MakeRequest(Prompt(40, 1), 10));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(answer.status.message().find("expert 3"), absl::string_view::npos);
  test.model.SetFailure(absl::OkStatus());
  const Answer next = test.Run(MakeRequest(Prompt(40, 1), 10));
  EXPECT_EQ(next.tokens.size(), 10u);
  EXPECT_EQ(next.usage.cached_tokens, 0);  // nothing of the failed batch is reused
  EXPECT_EQ(test.engine->Stats().requests_failed, 1);
}

// If an expert cannot be read, the requests of the batch that do not need it succeed.
TEST(EngineTest, AFailedForwardFailsOnlyItsSequences) {
  TestEngine test;
  const Answer undisturbed = test.Run(MakeRequest({65, 1, 2}, 50));
  const int64_t before = test.model.forwards();
  test.model.Hold();
  auto broken = test.Submit(MakeRequest({66, 1, 2}, 50));  // the second request
  test.model.WaitForForwards(before + 1);
  auto sound = test.Submit(MakeRequest({65, 1, 2}, 50));
  test.model.SetFailureOf(1, absl::DataLossError("layer 1, expert 3 is damaged"));
  test.model.Release();
  const Answer answer = ReadAll(broken.get());
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(answer.status.message().find("expert 3"), absl::string_view::npos);
  EXPECT_EQ(ReadAll(sound.get()).tokens, undisturbed.tokens);
  EXPECT_EQ(test.engine->Stats().requests_failed, 1);
}

// If a client does not read its stream, the stream is not pending work. So the engine must not look
// stuck.
TEST(EngineTest, WorkIsPendingWhereSomethingCanBeDone) {
  TestEngine test;
  const auto wait_for_rest = [&] {
    while (test.engine->Stats().work_pending) std::this_thread::yield();
  };
  wait_for_rest();
  test.model.Hold();
  GenerationRequest request = MakeRequest({65, 1, 2}, 50);
  request.credit = 2;
  auto stream = test.Submit(request);
  EXPECT_TRUE(test.engine->Stats().work_pending);
  test.model.WaitForForwards(1);
  EXPECT_TRUE(test.engine->Stats().work_pending);
  test.model.Release();
  wait_for_rest();
  EXPECT_EQ(test.engine->Stats().sequences_running, 1);
  EXPECT_EQ(stream->TryNext()->value().token_ids.size(), 2u);
  test.model.Hold();
  stream->AddCredit(1);
  test.model.WaitForForwards(3);
  EXPECT_TRUE(test.engine->Stats().work_pending);
  test.model.Release();
}

TEST(EngineTest, BrokenLogitsFailTheirSequenceOnly) {
  TestEngine test;
  test.model.SetScript([](absl::Span<const int32_t> history, absl::Span<float> logits) {
    if (history[0] == 66 && history.size() == 6) logits[17] = NAN;
  });
  auto broken = test.Submit(MakeRequest({66, 1, 2}, 50));
  auto sound = test.Submit(MakeRequest({65, 1, 2}, 50));
  const Answer answer = ReadAll(broken.get());
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(answer.status.message().find("token 17 is NaN"), absl::string_view::npos);
  EXPECT_EQ(answer.tokens.size(), 3u);
  EXPECT_EQ(ReadAll(sound.get()).tokens.size(), 50u);
}

}  // namespace
}  // namespace tidepool::engine
