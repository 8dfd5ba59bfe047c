// Streams: credit, cancelling, deadlines, callbacks, text, resuming, shutdown.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernels/base/retry_after.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

using fakes::ByteTokens;

std::vector<int32_t> Concat(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A request with the prompt "?". Its model generates `reply`, and then 'x' without end.
struct Dialogue {
  explicit Dialogue(std::vector<int32_t> reply) {
    test.model.SetScript(fakes::Replies(1, std::move(reply), 'x'));
    request = MakeRequest(ByteTokens("?"), 100);
  }
  Answer Run() { return test.Run(request); }

  TestEngine test;
  GenerationRequest request;
};

TEST(StreamTextTest, StopStringIsCutOutThoughItComesInPieces) {
  Dialogue dialogue(ByteTokens("one\n\nUser: two"));
  dialogue.request.stopping.stop = {"\n\nUser:"};
  const Answer answer = dialogue.Run();
  EXPECT_EQ(answer.text, "one");
  EXPECT_EQ(answer.finish, FinishReason::kStopString);
  EXPECT_EQ(answer.tokens, ByteTokens("one\n\nUser:"));
  dialogue.request.stopping.include_stop = true;
  EXPECT_EQ(dialogue.Run().text, "one\n\nUser:");
}

TEST(StreamTextTest, StopStringInsideAToken) {
  Dialogue dialogue(Concat(ByteTokens("so"), {fakes::kOperaToken}));
  dialogue.request.stopping.stop = {"oper"};
  const Answer answer = dialogue.Run();
  EXPECT_EQ(answer.text, "so");
  EXPECT_EQ(answer.tokens.size(), 3u);
}

TEST(StreamTextTest, TextThatOnlyBeginsAStopStringComesLater) {
  Dialogue dialogue(ByteTokens("ab\nabc"));
  dialogue.request.stopping.stop = {"abd", "\n\n"};
  dialogue.request.stopping.max_tokens = 6;
  dialogue.test.model.Hold();
  auto stream = dialogue.test.Submit(dialogue.request);
  std::vector<std::string> texts;
  for (int i = 0; i < 6; ++i) {
    dialogue.test.model.Allow(1);
    texts.push_back(stream->Next()->text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"", "", "ab", "\n", "", "abc"}));
}

TEST(StreamTextTest, CharactersComeWhole) {
  Dialogue dialogue(ByteTokens("né€😀"));
  dialogue.request.stopping.max_tokens = 10;
  dialogue.test.model.Hold();
  auto stream = dialogue.test.Submit(dialogue.request);
  std::vector<std::string> texts;
  for (int i = 0; i < 10; ++i) {
    dialogue.test.model.Allow(1);
    texts.push_back(stream->Next()->text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"n", "", "é", "", "", "€", "", "", "", "😀"}));
}

TEST(StreamTextTest, HalfACharacterAtTheEndIsReplaced) {
  Dialogue dialogue(ByteTokens("ab€"));
  dialogue.request.stopping.max_tokens = 4;
  EXPECT_EQ(dialogue.Run().text, "ab\xEF\xBF\xBD");
  dialogue.request.stopping.max_tokens = 5;
  EXPECT_EQ(dialogue.Run().text, "ab€");
}

TEST(StreamTextTest, HeldTextComesWithTheEnd) {
  Dialogue dialogue(Concat(ByteTokens("wait\n"), {fakes::kEndToken}));
  dialogue.request.stopping.stop = {"\n\n"};
  dialogue.request.stopping.ignore_eos = false;
  EXPECT_EQ(dialogue.Run().text, "wait\n");
  dialogue.request.stopping.max_tokens = 5;
  const Answer answer = dialogue.Run();
  EXPECT_EQ(answer.text, "wait\n");
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(StreamTextTest, EndTokens) {
  Dialogue dialogue(Concat(ByteTokens("a"), Concat({fakes::kStartToken, fakes::kEndToken}, {'b'})));
  dialogue.request.stopping.ignore_eos = false;
  Answer answer = dialogue.Run();
  EXPECT_EQ(answer.text, "a");
  EXPECT_EQ(answer.tokens.size(), 3u);
  EXPECT_EQ(answer.finish, FinishReason::kStop);

  dialogue.request.stopping.ignore_eos = true;
  dialogue.request.stopping.stop_token_ids = {'b'};
  answer = dialogue.Run();
  EXPECT_EQ(answer.text, "a");
  EXPECT_EQ(answer.tokens.size(), 4u);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  dialogue.request.stopping.include_stop = true;
  EXPECT_EQ(dialogue.Run().text, "ab");
}

TEST(StreamTextTest, PenaltiesCountPromptAndOutput) {
  Dialogue dialogue({});
  // The most probable tokens are 'x', 'y' and 'z', in this order. Their logits differ by one.
  dialogue.test.model.SetScript([](absl::Span<const int32_t>, absl::Span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits['x'] = 10;
    logits['y'] = 9;
    logits['z'] = 8;
  });
  dialogue.request.stopping.max_tokens = 6;
  EXPECT_EQ(dialogue.Run().text, "xxxxxx");
  dialogue.request.sampling.presence_penalty = 1.5;
  EXPECT_EQ(dialogue.Run().text, "xyxxxx");
  dialogue.request.sampling.presence_penalty = 0;
  dialogue.request.sampling.frequency_penalty = 0.6f;
  EXPECT_EQ(dialogue.Run().text, "xxyxyx");
  dialogue.request.sampling.frequency_penalty = 0;
  dialogue.request.sampling.repetition_penalty = 1.2f;
  EXPECT_EQ(dialogue.Run().text, "xyxxxx");
  dialogue.request.token_ids = {'?', 'x'};
  dialogue.request.prompt_length = 2;
  EXPECT_EQ(dialogue.Run().text, "yxxxxx");
  dialogue.request.sampling.repetition_penalty = 1;
  dialogue.request.sampling.logit_bias = {{'z', 3.0f}};
  EXPECT_EQ(dialogue.Run().text, "zzzzzz");
}

// A stream is resumed at every position, with every stateful feature on. It equals the rest of the
// original stream.
TEST(StreamResumeTest, ContinuesWithTheSameTokens) {
  TestEngine test;
  GenerationRequest request = MakeRequest(ByteTokens("What is the tide?"), 90);
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 42;
  request.sampling.repetition_penalty = 1.1f;
  request.sampling.frequency_penalty = 0.3f;
  request.sampling.presence_penalty = -0.2f;
  request.logprobs = true;
  // Letters have two bytes, so that some positions are inside of characters and of stop strings.
  test.model.SetScript([](absl::Span<const int32_t> history, absl::Span<float> logits) {
    const bool half = history.back() == 0xC3;
    for (int id = 0; id < static_cast<int>(logits.size()); ++id) {
      if (half ? id < 0xA8 || id > 0xAA : id != 0xC3 && id != 'a' && id != 'b') logits[id] -= 30;
    }
  });
  const std::vector<std::string> near_misses = {"aaabb", "éébé", "bbbbbbbbb", "abbaéèb"};
  const std::vector<std::string> hits = {"zz", "abbaéèb", "aaêbaèabaab"};
  for (const std::vector<std::string>& stops : {std::vector<std::string>{}, near_misses, hits}) {
    request.stopping.stop = stops;
    // Each chunk has one token, because the next forward pass waits until this token was read.
    test.model.Hold();
    auto stream = test.Submit(request);
    std::vector<StreamChunk> steps;
    while (steps.empty() || !steps.back().finish.has_value()) {
      test.model.Allow(1);
      auto chunk = stream->Next();
      ASSERT_TRUE(chunk.ok()) << chunk.status();
      ASSERT_EQ(chunk->token_ids.size(), 1u);
      steps.push_back(*std::move(chunk));
    }
    test.model.Release();
    EXPECT_EQ(steps.back().finish,
              stops == hits ? FinishReason::kStopString : FinishReason::kLength);

    std::vector<int32_t> tokens;
    for (const StreamChunk& step : steps) {
      tokens.insert(tokens.end(), step.token_ids.begin(), step.token_ids.end());
    }
    for (size_t cut = 0; cut < tokens.size(); ++cut) {
      GenerationRequest rest = request;
      rest.token_ids.insert(rest.token_ids.end(), tokens.begin(), tokens.begin() + cut);
      const Answer answer = test.Run(rest);
      std::string text;
      for (size_t i = cut; i < steps.size(); ++i) text += steps[i].text;
      ASSERT_FALSE(answer.chunks.empty()) << answer.status;
      EXPECT_EQ(answer.chunks.front().position, static_cast<int64_t>(cut));
      EXPECT_EQ(answer.tokens, std::vector<int32_t>(tokens.begin() + cut, tokens.end())) << cut;
      EXPECT_EQ(answer.text, text) << cut;
      EXPECT_EQ(answer.finish, steps.back().finish) << cut;
      EXPECT_EQ(answer.usage.completion_tokens, static_cast<int64_t>(tokens.size()));
      EXPECT_EQ(answer.logprobs.back().logprob, steps.back().logprobs.back().logprob) << cut;
    }
  }
}

TEST(StreamResumeTest, AnEndedResponseEndsAtOnce) {
  Dialogue dialogue({});
  const auto finish = [&](const std::vector<int32_t>& output) {
    GenerationRequest request = dialogue.request;
    request.token_ids = Concat(request.token_ids, output);
    const Answer answer = dialogue.test.Run(request);
    EXPECT_TRUE(answer.tokens.empty() && answer.text.empty());
    EXPECT_EQ(answer.chunks.front().position, static_cast<int64_t>(output.size()));
    return answer.finish;
  };
  dialogue.request.stopping.ignore_eos = false;
  EXPECT_EQ(finish({'a', fakes::kEndToken}), FinishReason::kStop);
  dialogue.request.stopping.stop = {"ab"};
  EXPECT_EQ(finish({'a', 'b'}), FinishReason::kStopString);
  dialogue.request.stopping.max_tokens = 3;
  EXPECT_EQ(finish({'a', 'a', 'a'}), FinishReason::kLength);
  EXPECT_EQ(dialogue.test.model.forwards(), 0);
}

TEST(StreamCreditTest, NoTokensWithoutCredit) {
  Dialogue dialogue({});
  dialogue.request.credit = 3;
  auto stalled = dialogue.test.Submit(dialogue.request);
  std::string text;
  while (text.size() < 3) text += stalled->Next()->text;
  // Another stream keeps the engine running. The first stream gets no more tokens.
  GenerationRequest other = dialogue.request;
  other.credit = 100;
  EXPECT_EQ(dialogue.test.Run(other).tokens.size(), 100u);
  EXPECT_FALSE(stalled->TryNext().has_value());
  const int64_t forwards = dialogue.test.model.forwards();
  EXPECT_EQ(forwards, 3 + 100);
  stalled->AddCredit(-5);
  stalled->AddCredit(0);
  stalled->AddCredit(2);
  while (text.size() < 5) text += stalled->Next()->text;
  EXPECT_EQ(dialogue.test.Run(other).tokens.size(), 100u);
  EXPECT_FALSE(stalled->TryNext().has_value());
  stalled->AddCredit(std::numeric_limits<int64_t>::max());
  stalled->AddCredit(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ReadAll(stalled.get()).tokens.size(), 95u);
}

TEST(StreamCreditTest, UntakenTokensBecomeOneChunk) {
  Dialogue dialogue(ByteTokens("abcdefgh"));
  dialogue.request.credit = 8;
  auto stream = dialogue.test.Submit(dialogue.request);
  GenerationRequest other = dialogue.request;
  other.credit = 100;
  dialogue.test.Run(other);
  const auto chunk = stream->TryNext();
  ASSERT_TRUE(chunk.has_value() && chunk->ok());
  EXPECT_EQ((*chunk)->text, "abcdefgh");
  EXPECT_EQ((*chunk)->position, 0);
  EXPECT_FALSE((*chunk)->finish.has_value());
}

TEST(StreamCancelTest, AtMostOneMoreTokenIsComputed) {
  Dialogue dialogue({});
  dialogue.test.model.Hold();
  auto stream = dialogue.test.Submit(dialogue.request);
  dialogue.test.model.Allow(3);
  dialogue.test.model.WaitForForwards(4);  // the fourth forward pass runs
  stream->Cancel();
  dialogue.test.model.Release();
  Answer answer = ReadAll(stream.get());
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kCancelled);
  EXPECT_LE(answer.tokens.size(), 4u);
  EXPECT_EQ(dialogue.test.model.forwards(), 4);
  const EngineStats stats = dialogue.test.engine->Stats();
  EXPECT_EQ(stats.requests_cancelled, 1);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  EXPECT_EQ(stats.sequences_running + stats.sequences_waiting, 0);
}

TEST(StreamCancelTest, ItsKvIsFreeWithinTwoSteps) {
  TestEngine test;
  test.model.Hold();
  auto stays = test.Submit(MakeRequest(std::vector<int32_t>(10, 'a'), 20));
  test.model.WaitForForwards(1);
  const int64_t free_without = test.engine->Stats().kv_blocks_free;
  auto leaves = test.Submit(MakeRequest(std::vector<int32_t>(100, 'b'), 100));
  test.model.Allow(4);
  test.model.WaitForForwards(5);  // the fifth forward computes both streams
  EXPECT_LT(test.engine->Stats().kv_blocks_free, free_without);
  leaves->Cancel();
  test.model.Allow(2);
  test.model.WaitForForwards(7);
  const EngineStats stats = test.engine->Stats();
  EXPECT_EQ(stats.kv_blocks_free, free_without);
  EXPECT_EQ(stats.sequences_running, 1);
  test.model.Release();
  EXPECT_EQ(ReadAll(stays.get()).tokens.size(), 20u);
}

TEST(StreamCancelTest, DestructionCancelsWaitingAndStalledStreams) {
  Dialogue dialogue({});
  dialogue.request.credit = 1;
  auto stalled = dialogue.test.Submit(dialogue.request);
  ASSERT_TRUE(stalled->Next().ok());
  stalled.reset();
  EXPECT_TRUE(dialogue.test.engine->WaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(dialogue.test.engine->Stats().requests_cancelled, 1);
  EXPECT_EQ(dialogue.test.model.forwards(), 1);
}

TEST(StreamDeadlineTest, ExpiredWorkStops) {
  Dialogue dialogue({});
  dialogue.request.deadline = absl::Seconds(10);
  dialogue.test.model.Hold();
  auto stream = dialogue.test.Submit(dialogue.request);
  dialogue.test.model.Allow(2);
  dialogue.test.model.WaitForForwards(3);
  dialogue.test.clock.Advance(absl::Seconds(10));
  dialogue.test.model.Release();
  const Answer answer = ReadAll(stream.get());
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(dialogue.test.model.forwards(), 3);
  // The deadline has passed when the request arrives.
  EXPECT_EQ(dialogue.Run().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(dialogue.test.model.forwards(), 3);
}

TEST(StreamCallbackTest, ReportsEveryChange) {
  Dialogue dialogue({});
  dialogue.request.credit = 5;
  auto stream = dialogue.test.Submit(dialogue.request);
  base::Mutex mutex;
  base::CondVar changed;
  int64_t tokens = 0;
  bool finished = false;
  stream->OnReady([&] {
    while (auto chunk = stream->TryNext()) {
      ASSERT_TRUE(chunk->ok());
      stream->AddCredit((*chunk)->token_ids.size());
      base::MutexLock lock(&mutex);
      tokens += (*chunk)->token_ids.size();
      finished = (*chunk)->finish.has_value();
      if (finished) changed.NotifyAll();
    }
  });
  base::MutexLock lock(&mutex);
  while (!finished) changed.Wait(&mutex);
  EXPECT_EQ(tokens, 100);
}

TEST(StreamCallbackTest, DestructionWaitsForTheCallback) {
  for (int round = 0; round < 50; ++round) {
    Dialogue dialogue({});
    auto stream = dialogue.test.Submit(dialogue.request);
    auto alive = std::make_unique<std::atomic<int>>(0);
    stream->OnReady([&alive] { alive->fetch_add(1); });
    dialogue.test.model.WaitForForwards(1 + round % 5);
    stream.reset();
    alive.reset();  // a callback after this would be a use of freed memory
  }
}

TEST(StreamCallbackTest, NothingFollowsTheEnd) {
  Dialogue dialogue({});
  dialogue.request.stopping.max_tokens = 1;
  auto stream = dialogue.test.Submit(dialogue.request);
  EXPECT_TRUE(stream->Next()->finish.has_value());
  EXPECT_FALSE(stream->TryNext().has_value());
  EXPECT_EQ(stream->Next().status().code(), absl::StatusCode::kOutOfRange);
  stream->Cancel();  // too late to have an effect
  EXPECT_TRUE(dialogue.test.engine->WaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(dialogue.test.engine->Stats().requests_cancelled, 0);
}

TEST(EngineShutdownTest, EndsRunningAndWaitingRequests) {
  EngineOptions options = MakeOptions();
  options.max_sequences = 2;
  TestEngine test(options);
  test.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 5; ++i) {
    GenerationRequest request = MakeRequest({i}, 100);
    request.credit = 50;  // none can finish, however fast the engine is
    streams.push_back(test.Submit(request));
  }
  test.model.WaitForForwards(1);
  std::thread release([&] { test.model.Release(); });
  test.engine.reset();
  release.join();
  for (auto& stream : streams) {
    EXPECT_EQ(ReadAll(stream.get()).status.code(), absl::StatusCode::kUnavailable);
    stream->AddCredit(1);
    stream->Cancel();
  }
}

TEST(EngineClockTest, DeadlinesTakeNoNoticeOfTheWallClock) {
  TestEngine test;
  test.model.Hold();
  GenerationRequest request = MakeRequest({1}, 20);
  request.deadline = test.clock.Monotonic() + absl::Minutes(10);
  auto first = test.Submit(request);
  test.model.WaitForForwards(1);
  test.clock.JumpWall(absl::Hours(1));
  test.model.Release();
  EXPECT_EQ(ReadAll(first.get()).tokens.size(), 20u);

  const int64_t before = test.model.forwards();
  test.model.Hold();
  auto second = test.Submit(request);
  test.model.WaitForForwards(before + 1);
  test.clock.JumpWall(-absl::Hours(2));
  test.clock.Advance(absl::Minutes(11));
  test.model.Release();
  EXPECT_EQ(ReadAll(second.get()).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EngineShutdownTest, DrainsWhenItAcceptsNoMore) {
  TestEngine test;
  test.model.Hold();
  auto stream = test.Submit(MakeRequest({1}, 20));
  test.engine->StopAccepting();
  EXPECT_EQ(test.engine->Submit(MakeRequest({2}, 20)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(test.engine->WaitIdle(absl::ZeroDuration()));
  test.model.Release();
  EXPECT_TRUE(test.engine->WaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(stream->TryNext()->value().token_ids.size(), 20u);
}

TEST(EngineQueueTest, RefusesBeyondItsBound) {
  EngineOptions options = MakeOptions();
  options.max_sequences = 1;
  options.max_queued = 2;
  TestEngine test(options);
  test.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(test.Submit(MakeRequest({i}, 3)));
  const absl::Status refused = test.engine->Submit(MakeRequest({9}, 3)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::RetryAfterOf(refused), absl::Seconds(1)) << "nothing is measured yet";
  test.model.Release();
  EXPECT_TRUE(ReadAll(streams[0].get()).finish.has_value());
  EXPECT_EQ(test.Run(MakeRequest({9}, 3)).tokens.size(), 3u);
}

TEST(EngineQueueTest, OnePrincipalLeavesRoomForOthers) {
  EngineOptions options = MakeOptions();
  options.max_sequences = 1;
  options.max_queued = 26;
  TestEngine test(options);
  test.model.Hold();
  const auto request_of = [](const std::string& principal) {
    GenerationRequest request = MakeRequest({1}, 3);
    request.principal = principal;
    return request;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 24; ++i) streams.push_back(test.Submit(request_of("greedy")));
  const absl::Status refused = test.engine->Submit(request_of("greedy")).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::RetryAfterOf(refused), absl::Seconds(1));
  const std::unique_ptr<Stream> other = test.Submit(request_of("other"));
  test.model.Release();
  EXPECT_TRUE(ReadAll(other.get()).finish.has_value());
  for (const auto& stream : streams) EXPECT_TRUE(ReadAll(stream.get()).finish.has_value());
  // All places are free again.
  streams.clear();
  for (int i = 0; i < 24; ++i) streams.push_back(test.Submit(request_of("greedy")));
}

}  // namespace
}  // namespace tidepool::engine
