// Constrained output through the engine.
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/grammar/matcher.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fixture.h"

namespace tidepool::engine {
namespace {

using grammar::GrammarCache;
using grammar::GrammarKind;
using grammar::GrammarSource;

constexpr char kSchema[] = R"({"type": "object", "required": ["a", "b"], "properties": {
    "a": {"enum": ["x", "yy"]}, "b": {"type": "array", "items": {"type": "boolean"},
    "maxItems": 3}}, "additionalProperties": false})";

GenerationRequest Constrained(const GrammarSource& source, GrammarCache* cache) {
  GenerationRequest request = MakeRequest({1, 2, 3}, 200);
  request.stopping.ignore_eos = false;
  request.grammar = cache->Get(source).value();
  request.token_trie = cache->trie();
  return request;
}

bool Accepts(const GenerationRequest& request, const std::string& text) {
  grammar::Matcher matcher(request.grammar, nullptr);
  return matcher.AcceptText(text) == text.size() && matcher.accepts();
}

TEST(ConstraintTest, EveryFinishedResponseMatches) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  for (const GrammarSource& source :
       {GrammarSource{.kind = GrammarKind::kJsonSchema, .text = kSchema},
        GrammarSource{.kind = GrammarKind::kRegex, .text = "[a-f]{3}(opera)?-[0-9]+!"},
        GrammarSource{.kind = GrammarKind::kChoice, .choices = {"yes", "no", "maybe"}},
        GrammarSource{.kind = GrammarKind::kGbnf, .text = "root ::= \"(\" root \")\" | \"x\""}}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      GenerationRequest request = Constrained(source, &cache);
      request.sampling = {.temperature = 1.5, .seed = seed};
      const GenerationRequest copy = request;
      const Answer answer = test.Run(std::move(request));
      if (answer.finish == FinishReason::kLength) continue;
      EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.status;
      EXPECT_TRUE(Accepts(copy, answer.text)) << answer.text;
    }
  }
}

TEST(ConstraintTest, GreedyResponsesMatchToo) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  const GenerationRequest request =
      Constrained({.kind = GrammarKind::kJsonSchema, .text = kSchema}, &cache);
  const Answer answer = test.Run(request);
  EXPECT_TRUE(Accepts(request, answer.text)) << answer.text;
}

TEST(ConstraintTest, AResponseContinuesAfterTheTokensOfAnEarlierAttempt) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request =
      Constrained({.kind = GrammarKind::kJsonSchema, .text = kSchema}, &cache);
  request.sampling = {.temperature = 1.5, .seed = 7};
  const Answer whole = test.Run(request);
  ASSERT_EQ(whole.finish, FinishReason::kStop);
  for (size_t cut = 1; cut < whole.tokens.size(); ++cut) {
    GenerationRequest rest = request;
    rest.token_ids.insert(rest.token_ids.end(), whole.tokens.begin(), whole.tokens.begin() + cut);
    const Answer answer = test.Run(std::move(rest));
    EXPECT_EQ(std::vector<int32_t>(whole.tokens.begin() + cut, whole.tokens.end()), answer.tokens);
  }
}

TEST(ConstraintTest, BatchesAndSharedGrammarsChangeNothing) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request =
      Constrained({.kind = GrammarKind::kJsonSchema, .text = kSchema}, &cache);
  std::vector<std::string> alone;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    request.sampling = {.temperature = 1.5, .seed = seed};
    alone.push_back(test.Run(request).text);
  }
  test.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    request.sampling = {.temperature = 1.5, .seed = seed};
    streams.push_back(test.Submit(request));
  }
  test.model.Release();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(ReadAll(streams[seed].get()).text, alone[seed]);
  }
}

TEST(ConstraintTest, AnEndThatIsTheOnlyTokenComesBeforeMinTokens) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request = Constrained({.kind = GrammarKind::kRegex, .text = "ab*"}, &cache);
  request.stopping.min_tokens = 6;
  EXPECT_GE(test.Run(request).tokens.size(), 6u);
  request = Constrained({.kind = GrammarKind::kChoice, .choices = {"ab"}}, &cache);
  request.stopping.min_tokens = 6;
  const Answer answer = test.Run(request);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

TEST(ConstraintTest, LogprobsAreTheModelsOwn) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request = Constrained({.kind = GrammarKind::kRegex, .text = "q"}, &cache);
  request.logprobs = true;
  const Answer constrained = test.Run(request);
  ASSERT_FALSE(constrained.logprobs.empty());
  EXPECT_EQ(constrained.logprobs[0].token_id, 'q');
  EXPECT_LT(constrained.logprobs[0].logprob, -1);
}

TEST(ConstraintTest, Refusals) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request = Constrained({.kind = GrammarKind::kRegex, .text = "ab"}, &cache);
  request.stopping.ignore_eos = true;
  EXPECT_EQ(test.engine->Submit(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.stopping.ignore_eos = false;
  request.token_ids.push_back('x');
  EXPECT_EQ(test.engine->Submit(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GrammarCacheTest, KeepsTheGrammarsThatWereUsedLast) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  GrammarCache cache(tokenizer.get());
  const auto get = [&cache](int number) {
    return cache.Get({.kind = GrammarKind::kRegex, .text = "a{" + std::to_string(number) + "}"})
        .value();
  };
  const auto first = get(1);
  for (int i = 2; i < 32; ++i) get(i);
  EXPECT_EQ(get(1), first);
  for (int i = 40; i < 80; ++i) get(i);
  EXPECT_NE(get(1), first);
  EXPECT_EQ(cache.trie(), cache.trie());
}

}  // namespace
}  // namespace tidepool::engine
