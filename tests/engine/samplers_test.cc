// DRY, XTC, bad_words and the other samplers through the engine.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/engine.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/token_trie.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

using fakes::ByteTokens;

constexpr int64_t kTokens = 150;

// Makes some letters so probable that the response repeats itself.
void Repeat(absl::Span<const int32_t>, absl::Span<float> logits) {
  for (const char letter : std::string("aaabbc:")) logits[letter] += 4;
}

// A request that uses every sampler that depends on earlier tokens.
GenerationRequest Everything(uint64_t seed) {
  GenerationRequest request = MakeRequest(ByteTokens("abcabcab:cab"), kTokens);
  request.sampling = {.temperature = 1,
                      .seed = seed,
                      .repetition_penalty = 1.05f,
                      .typical_p = 0.95f,
                      .top_n_sigma = 3,
                      .xtc_probability = 0.3f,
                      .dry_multiplier = 0.8f,
                      .dry_allowed_length = 1,
                      .dry_sequence_breakers = {"aa", "b:"},
                      .bad_words = {"ba"}};
  return request;
}

TEST(SamplersTest, AResponseContinuesAfterTheTokensOfAnEarlierAttempt) {
  TestEngine test;
  test.model.SetScript(Repeat);
  const GenerationRequest request = Everything(1);
  const Answer whole = test.Run(request);
  ASSERT_EQ(whole.tokens.size(), static_cast<size_t>(kTokens)) << whole.status;
  GenerationRequest other = request;
  other.sampling.dry_multiplier = 0;
  EXPECT_NE(test.Run(other).tokens, whole.tokens);
  other = request;
  other.sampling.dry_sequence_breakers = {"z"};
  EXPECT_NE(test.Run(other).tokens, whole.tokens);
  TestEngine another;
  another.model.SetScript(Repeat);
  for (int64_t cut = 1; cut < kTokens; ++cut) {
    GenerationRequest rest = request;
    rest.token_ids.insert(rest.token_ids.end(), whole.tokens.begin(), whole.tokens.begin() + cut);
    EXPECT_EQ(another.Run(std::move(rest)).tokens,
              std::vector<int32_t>(whole.tokens.begin() + cut, whole.tokens.end()));
  }
}

TEST(SamplersTest, PreemptionAndChunksChangeNothing) {
  constexpr int kStreams = 6;
  std::vector<std::vector<int32_t>> expected;
  TestEngine roomy;
  roomy.model.SetScript(Repeat);
  expected.reserve(kStreams);
  for (int i = 0; i < kStreams; ++i) expected.push_back(roomy.Run(Everything(i)).tokens);
  EngineOptions small = MakeOptions();
  small.kv_memory_bytes = MemoryOfBlocks(13);
  small.prefill_chunk = 5;
  TestEngine test(small);
  test.model.SetScript(Repeat);
  test.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  streams.reserve(kStreams);
  for (int i = 0; i < kStreams; ++i) streams.push_back(test.Submit(Everything(i)));
  test.model.Release();
  for (int i = 0; i < kStreams; ++i) EXPECT_EQ(ReadAll(streams[i].get()).tokens, expected[i]);
  EXPECT_GT(test.engine->Stats().preemptions, 0);
}

TEST(SamplersTest, DryKnowsThePromptAndChangesGreedyResponses) {
  TestEngine test;
  test.model.SetScript([](absl::Span<const int32_t>, absl::Span<float> logits) {
    logits['d'] = 9;
    logits['e'] = 8.5;
  });
  GenerationRequest request = MakeRequest(ByteTokens("abcd.abc"), 1);
  EXPECT_EQ(test.Run(request).text, "d");
  request.sampling.dry_multiplier = 0.5;
  EXPECT_EQ(test.Run(request).text, "e");
  request.sampling.dry_penalty_last_n = 0;
  EXPECT_EQ(test.Run(request).text, "d");
}

TEST(SamplersTest, BadWordsDoNotOccurInTheOutput) {
  TestEngine test;
  test.model.SetScript(Repeat);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    GenerationRequest request = MakeRequest(ByteTokens("aaa"), kTokens);
    request.sampling = {.temperature = 1, .seed = seed};
    EXPECT_TRUE(absl::StrContains(test.Run(request).text, "ab"));
    request.sampling.bad_words = {"ab", "bb"};
    const Answer answer = test.Run(request);
    EXPECT_FALSE(absl::StrContains(answer.text, "ab"));
    EXPECT_FALSE(absl::StrContains(answer.text, "bb"));
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(kTokens));
  }
}

TEST(SamplersTest, OnlyAllowedTokensAreSampled) {
  TestEngine test;
  for (const float temperature : {0.0f, 1.0f}) {
    GenerationRequest request = MakeRequest(ByteTokens("x"), kTokens);
    request.sampling.temperature = temperature;
    request.sampling.allowed_token_ids = {'q', 'r'};
    for (const int32_t token : test.Run(request).tokens) EXPECT_TRUE(token == 'q' || token == 'r');
  }
  // The end token is one of the tokens that must be allowed.
  GenerationRequest request = MakeRequest(ByteTokens("x"), kTokens);
  request.stopping.ignore_eos = false;
  request.sampling.allowed_token_ids = {fakes::kEndToken};
  EXPECT_EQ(test.Run(request).finish, FinishReason::kStop);
}

TEST(SamplersTest, ARequestThatExcludesAllTokensFails) {
  TestEngine test;
  const auto expect = [&test](const GenerationRequest& request,
                              const std::vector<const char*>& named) {
    const Answer answer = test.Run(request);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* name : named) {
      EXPECT_TRUE(absl::StrContains(answer.status.message(), name)) << answer.status;
    }
  };
  GenerationRequest request = MakeRequest(ByteTokens("x"), kTokens);
  request.stopping.ignore_eos = false;
  request.sampling.allowed_token_ids = {fakes::kEndToken};
  request.stopping.min_tokens = 2;
  expect(request, {"position 0", "allowed_token_ids and min_tokens exclude"});
  request.stopping.min_tokens = 0;
  request.sampling.allowed_token_ids = {'q'};
  request.sampling.bad_words = {"qqq"};
  expect(request, {"position 2", "allowed_token_ids and bad_words exclude"});
  request.sampling.bad_words = {};
  request.grammar =
      grammar::CompileGrammar({.kind = grammar::GrammarKind::kRegex, .text = "qa"}, nullptr)
          .value();
  request.token_trie = std::make_shared<const grammar::TokenTrie>(*test.tokenizer);
  expect(request, {"position 1", "the constraint and allowed_token_ids exclude"});
  request.sampling.allowed_token_ids = {'a', 'q', fakes::kEndToken};
  EXPECT_EQ(test.Run(request).text, "qa");
}

}  // namespace
}  // namespace tidepool::engine
