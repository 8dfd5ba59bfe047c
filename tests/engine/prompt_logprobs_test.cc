// Log-probabilities of prompt tokens, generations without output tokens, and tokens that must not
// end a generation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int kVocab = fakes::kByteVocabSize;

// Returns the expected logits after a history.
std::vector<float> LogitsAfter(absl::Span<const int32_t> history) {
  std::vector<float> logits(kVocab);
  for (int id = 0; id < kVocab; ++id) {
    logits[id] = static_cast<float>((history.back() * 7 + history.size() * 3 + id * 13) % 50) / 10;
  }
  return logits;
}

void Follow(fakes::ScriptedModel* model) {
  model->SetScript([](absl::Span<const int32_t> history, absl::Span<float> logits) {
    const std::vector<float> wanted = LogitsAfter(history);
    std::copy(wanted.begin(), wanted.end(), logits.begin());
  });
}

std::vector<int32_t> LongPrompt(int tokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back((i * i + 11) % 250);
  return prompt;
}

GenerationRequest Scored(const std::vector<int32_t>& prompt, int32_t top, int64_t max_tokens) {
  GenerationRequest request = MakeRequest(prompt, max_tokens);
  request.prompt_logprobs = top;
  return request;
}

// Reads to the end and grants credit for everything that arrives. Returns the prompt's entries in
// order.
std::vector<TokenLogprob> ReadPrompt(Stream* stream, int64_t first = 0, Answer* answer = nullptr) {
  std::vector<TokenLogprob> entries;
  Answer ignored;
  Answer* to = answer == nullptr ? &ignored : answer;
  while (!to->finish.has_value()) {
    absl::StatusOr<StreamChunk> chunk = stream->Next();
    EXPECT_TRUE(chunk.ok()) << chunk.status();
    if (!chunk.ok()) return entries;
    if (!chunk->prompt_logprobs.empty()) {
      EXPECT_EQ(chunk->prompt_position, first + static_cast<int64_t>(entries.size()));
    }
    for (TokenLogprob& entry : chunk->prompt_logprobs) entries.push_back(entry);
    to->tokens.insert(to->tokens.end(), chunk->token_ids.begin(), chunk->token_ids.end());
    to->text += chunk->text;
    to->finish = chunk->finish;
    to->usage = chunk->usage;
    stream->AddCredit(chunk->prompt_logprobs.size() + chunk->token_ids.size());
  }
  return entries;
}

void ExpectEntry(const TokenLogprob& entry, absl::Span<const int32_t> prompt, size_t at,
                 size_t top) {
  EXPECT_EQ(entry.token_id, prompt[at]);
  if (at == 0) {
    EXPECT_EQ(entry.rank, 0);
    return;
  }
  const std::vector<float> logits = LogitsAfter(prompt.first(at));
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(entry.logprob, logits[prompt[at]] - std::log(total), 1e-5) << at;
  const auto better = std::count_if(logits.begin(), logits.end(),
                                    [&](float logit) { return logit > logits[prompt[at]]; });
  const auto equal_before =
      std::count(logits.begin(), logits.begin() + prompt[at], logits[prompt[at]]);
  EXPECT_EQ(entry.rank, 1 + better + equal_before) << at;
  ASSERT_EQ(entry.top.size(), top);
  for (size_t i = 0; i < top; ++i) {
    EXPECT_NEAR(entry.top[i].second, logits[entry.top[i].first] - std::log(total), 1e-5);
    EXPECT_GE(entry.top[i == 0 ? 0 : i - 1].second, entry.top[i].second);
  }
  if (top > 0) {
    EXPECT_EQ(logits[entry.top[0].first], *std::max_element(logits.begin(), logits.end()));
  }
}

void ExpectEqual(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token_id, b[i].token_id) << i;
    EXPECT_EQ(a[i].logprob, b[i].logprob) << i;  // every bit
    EXPECT_EQ(a[i].rank, b[i].rank) << i;
    EXPECT_EQ(a[i].top, b[i].top) << i;
  }
}

EngineOptions WithSpareRows(int64_t rows) {
  EngineOptions options = MakeOptions();
  options.limits.logit_rows = options.max_sequences + rows;
  return options;
}

TEST(PromptLogprobsTest, ReportsEachPromptTokenOnce) {
  const std::vector<int32_t> prompt = LongPrompt(100);
  for (const int64_t spare : {0, 7, 200}) {
    SCOPED_TRACE(spare);
    TestEngine test(WithSpareRows(spare));
    Follow(&test.model);
    Answer answer;
    const auto entries = ReadPrompt(test.Submit(Scored(prompt, 3, 4)).get(), 0, &answer);
    ASSERT_EQ(entries.size(), prompt.size());
    for (size_t i = 0; i < prompt.size(); ++i) ExpectEntry(entries[i], prompt, i, 3);
    EXPECT_EQ(answer.tokens.size(), 4);
    EXPECT_EQ(answer.tokens, test.Run(MakeRequest(prompt, 4)).tokens);
  }
}

TEST(PromptLogprobsTest, PromptLogprobsRecomputeCachedRows) {
  const std::vector<int32_t> prompt = LongPrompt(100);
  TestEngine test(WithSpareRows(16));
  Follow(&test.model);
  const auto before = ReadPrompt(test.Submit(Scored(prompt, 0, 0)).get());
  EXPECT_GT(test.Run(MakeRequest(prompt, 2)).usage.cached_tokens, 0);
  Answer answer;
  const auto after = ReadPrompt(test.Submit(Scored(prompt, 0, 0)).get(), 0, &answer);
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  ExpectEqual(after, before);
}

TEST(PromptLogprobsTest, ContinuesWhereAnEarlierAttemptEnded) {
  const std::vector<int32_t> prompt = LongPrompt(100);
  TestEngine test(WithSpareRows(16));
  Follow(&test.model);
  const auto all = ReadPrompt(test.Submit(Scored(prompt, 2, 0)).get());
  for (const int64_t from : {1, 2, 40, 99, 100}) {
    SCOPED_TRACE(from);
    GenerationRequest request = Scored(prompt, 2, 0);
    request.prompt_logprobs_from = from;
    Answer answer;
    const auto rest = ReadPrompt(test.Submit(request).get(), from, &answer);
    ExpectEqual(rest, {all.begin() + from, all.end()});
    // KV before the first needed row can come from the cache.
    if (from > 40) {
      EXPECT_GT(answer.usage.cached_tokens, 0);
    }
  }
}

TEST(PromptLogprobsTest, TakesCreditAndWaitsForMore) {
  const std::vector<int32_t> prompt = LongPrompt(60);
  TestEngine test(WithSpareRows(3));
  Follow(&test.model);
  GenerationRequest request = Scored(prompt, 0, 1);
  request.credit = 5;
  const auto stream = test.Submit(request);
  std::vector<TokenLogprob> entries;
  // Without credit, the request does not continue. Meanwhile, another request completes.
  while (entries.size() < 5) {
    const auto chunk = stream->Next();
    ASSERT_TRUE(chunk.ok());
    entries.insert(entries.end(), chunk->prompt_logprobs.begin(), chunk->prompt_logprobs.end());
  }
  test.Run(MakeRequest({1, 2, 3}, 20));
  EXPECT_FALSE(stream->TryNext().has_value());
  stream->AddCredit(entries.size());
  const auto rest = ReadPrompt(stream.get(), entries.size());
  entries.insert(entries.end(), rest.begin(), rest.end());
  ASSERT_EQ(entries.size(), prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i) ExpectEntry(entries[i], prompt, i, 0);
}

TEST(PromptLogprobsTest, LosesAndRepeatsNothingWhenItIsPreempted) {
  EngineOptions options = WithSpareRows(5);
  options.kv_memory_bytes = MemoryOfBlocks(6);
  TestEngine test(options);
  Follow(&test.model);
  test.model.Hold();
  const std::vector<int32_t> prompt = LongPrompt(100);
  const auto scored = test.Submit(Scored(prompt, 1, 3));
  test.model.Allow(4);
  test.model.WaitForForwards(5);
  // In the middle of the prompt, another request with a higher priority needs nearly all blocks.
  GenerationRequest urgent = MakeRequest(LongPrompt(150), 5);
  urgent.token_ids[0] = 1;
  urgent.priority = 1;
  const auto other = test.Submit(urgent);
  test.model.Release();
  EXPECT_EQ(ReadAll(other.get()).tokens.size(), 5);
  const auto entries = ReadPrompt(scored.get());
  ASSERT_EQ(entries.size(), prompt.size());
  for (size_t at = 0; at < entries.size(); ++at) ExpectEntry(entries[at], prompt, at, 1);
  EXPECT_EQ(test.engine->Stats().preemptions, 1);
}

TEST(PromptLogprobsTest, BrokenLogitsFailTheirSequenceOnly) {
  TestEngine test(WithSpareRows(30));
  test.model.SetScript([](absl::Span<const int32_t> history, absl::Span<float> logits) {
    const std::vector<float> wanted = LogitsAfter(history);
    std::copy(wanted.begin(), wanted.end(), logits.begin());
    if (history.back() == 255) logits[3] = std::nanf("");
  });
  const std::vector<int32_t> sound = LongPrompt(20);
  std::vector<int32_t> broken = LongPrompt(25);
  broken[0] = 1;
  broken[4] = 255;  // many rows follow
  const auto expected = ReadPrompt(test.Submit(Scored(sound, 1, 0)).get());
  // The requests are in one batch, because they are submitted while an earlier request is computed.
  test.model.Hold();
  const int64_t before = test.model.forwards();
  const auto first = test.Submit(MakeRequest({9, 8}, 2));
  test.model.WaitForForwards(before + 1);
  const auto fails = test.Submit(Scored(broken, 1, 3));
  const auto next = test.Submit(Scored(sound, 1, 0));
  test.model.Release();
  ExpectEqual(ReadPrompt(next.get()), expected);
  EXPECT_EQ(ReadAll(fails.get()).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReadAll(first.get()).tokens.size(), 2);
}

TEST(PromptLogprobsTest, AnAnswerOfNoTokensEndsWithItsPrompt) {
  TestEngine test;
  Follow(&test.model);
  const Answer answer = test.Run(MakeRequest(LongPrompt(30), 0));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.usage.prompt_tokens, 30);
  EXPECT_EQ(answer.usage.completion_tokens, 0);
}

TEST(PromptLogprobsTest, ProgressComesWithEachChunkOfThePrompt) {
  EngineOptions options = MakeOptions();
  options.prefill_chunk = 10;
  TestEngine test(options);
  test.model.Hold();
  GenerationRequest request = MakeRequest(LongPrompt(35), 1);
  request.progress = true;
  const auto stream = test.Submit(request);
  for (const int64_t processed : {10, 20, 30, 35}) {
    test.model.Allow(1);
    const auto chunk = stream->Next();
    ASSERT_TRUE(chunk.ok() && chunk->progress.has_value());
    EXPECT_EQ(chunk->progress->processed, processed);
    EXPECT_EQ(chunk->progress->total, 35);
    EXPECT_EQ(chunk->progress->cached, 0);
  }
  test.model.Release();
}

// Makes the model prefer to end at once.
void WantEnd(fakes::ScriptedModel* model) {
  model->SetScript([](absl::Span<const int32_t>, absl::Span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[fakes::kEndToken] = 9;
    logits['b'] = 5;
    logits['a'] = 4;
  });
}

TEST(MinTokensTest, DrawsNoEndBeforeThem) {
  TestEngine test;
  WantEnd(&test.model);
  GenerationRequest request = MakeRequest({1, 2}, 10);
  request.stopping.ignore_eos = false;
  EXPECT_EQ(test.Run(request).tokens.size(), 1);
  request.stopping.min_tokens = 4;
  for (const float temperature : {0.0f, 0.1f}) {
    request.sampling.temperature = temperature;
    const Answer answer = test.Run(request);
    EXPECT_EQ(answer.text, "bbbb");
    EXPECT_EQ(answer.finish, FinishReason::kStop);
    EXPECT_EQ(answer.tokens.size(), 5);
  }
  request.stopping.stop_token_ids = {'b'};
  EXPECT_EQ(test.Run(request).text, "aaaa");
}

TEST(MinTokensTest, LooksForNoStopStringInThem) {
  TestEngine test;
  WantEnd(&test.model);
  GenerationRequest request = MakeRequest({1, 2}, 10);
  request.sampling.logit_bias = {{fakes::kEndToken, -100}};
  request.stopping.stop = {"bb"};
  EXPECT_EQ(test.Run(request).text, "");
  request.stopping.min_tokens = 3;
  const Answer answer = test.Run(request);
  EXPECT_EQ(answer.text, "bbb");
  EXPECT_EQ(answer.tokens.size(), 5);
  EXPECT_EQ(answer.finish, FinishReason::kStopString);
  // If a request continues an earlier attempt, it ends at the same place.
  for (size_t k = 1; k < answer.tokens.size(); ++k) {
    GenerationRequest resumed = request;
    resumed.token_ids.insert(resumed.token_ids.end(), answer.tokens.begin(),
                             answer.tokens.begin() + k);
    EXPECT_EQ(test.Run(resumed).tokens.size(), answer.tokens.size() - k) << k;
  }
}

}  // namespace
}  // namespace tidepool::engine
