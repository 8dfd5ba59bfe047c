// Tests constrained output with an engine.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/output_regions.h"
#include "engine/scheduler/reasoning_tracker.h"
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

std::shared_ptr<const grammar::Grammar> Compiled(const GrammarSource& source, GrammarCache* cache) {
  return cache->Get(source.text, [&source] { return grammar::CompileIr(source, nullptr); }).value();
}

GenerationRequest Constrained(const GrammarSource& source, GrammarCache* cache) {
  GenerationRequest request = MakeRequest({1, 2, 3}, 200);
  request.stopping.ignore_eos = false;
  request.grammar = Compiled(source, cache);
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

// A token whose log-probability is requested needs its logits, so it is not forced.
TEST(ConstraintTest, ForcedTokensNeedFewerStepsAndChangeNothing) {
  for (const int state_layers : {0, 2}) {
    EngineOptions patient = MakeOptions();
    patient.mask_patience = absl::InfiniteDuration();
    TestEngine test(patient, {.state_layers = state_layers});
    GrammarCache cache(test.tokenizer.get());
    GenerationRequest request = Constrained(
        {.kind = GrammarKind::kRegex, .text = "[a-d]-the only text-[a-d]*-and so on-"}, &cache);
    for (uint64_t seed = 0; seed < 8; ++seed) {
      request.sampling = {.temperature = 1.5, .seed = seed};
      const auto run = [&](bool logprobs) {
        const int64_t before = test.engine->Stats().steps;
        request.logprobs = logprobs;
        Answer answer = test.Run(request);
        return std::make_pair(std::move(answer), test.engine->Stats().steps - before);
      };
      const auto [forced, few_steps] = run(false);
      const auto [sampled, all_steps] = run(true);
      ASSERT_EQ(forced.finish, sampled.finish);
      std::vector<int32_t> tokens = sampled.tokens;
      tokens.pop_back();  // the end token, whose log-probability is reported
      EXPECT_EQ(forced.tokens, tokens);
      EXPECT_EQ(forced.text, sampled.text);
      // Each step may have two rows of a sequence, so half of the 29 forced tokens need no step.
      EXPECT_LE(few_steps, all_steps - 14);
    }
  }
}

TEST(ConstraintTest, ForcedTokensUseCredit) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request =
      Constrained({.kind = GrammarKind::kRegex, .text = "0123456789abcdef"}, &cache);
  request.credit = 5;
  const std::unique_ptr<Stream> stream = test.Submit(std::move(request));
  std::string text;
  while (text.size() < 5) text += stream->Next()->text;
  EXPECT_EQ(text, "01234");
  stream->AddCredit(100);
  EXPECT_EQ(text + ReadAll(stream.get()).text, "0123456789abcdef");
}

TEST(ConstraintTest, SequencesWithForcedTokensShareTheRowsOfAStep) {
  EngineOptions options = MakeOptions();
  options.limits = {.rows = 40, .logit_rows = 32};
  options.max_sequences = 8;
  options.prefill_chunk = 32;
  TestEngine test(options);
  GrammarCache cache(test.tokenizer.get());
  const std::string text(150, 'x');
  test.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 12; ++i) {
    GenerationRequest request = Constrained({.kind = GrammarKind::kRegex, .text = text}, &cache);
    if (i % 3 == 0) request.grammar = nullptr;
    streams.push_back(test.Submit(std::move(request)));
  }
  test.model.Release();
  for (int i = 0; i < 12; ++i) {
    const Answer answer = ReadAll(streams[i].get());
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (i % 3 != 0) {
      EXPECT_EQ(answer.text, text);
    }
  }
}

// If steps do not wait for masks, most masks are late, and their rows are computed again.
TEST(ConstraintTest, LateMasksChangeNothing) {
  EngineOptions impatient = MakeOptions();
  impatient.mask_patience = absl::ZeroDuration();
  for (const int state_layers : {0, 2}) {
    TestEngine patient(MakeOptions(), {.state_layers = state_layers});
    TestEngine test(impatient, {.state_layers = state_layers});
    GrammarCache cache(test.tokenizer.get());
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<Answer> expected;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      GenerationRequest request =
          Constrained({.kind = GrammarKind::kJsonSchema, .text = kSchema}, &cache);
      request.sampling = {.temperature = 1.5, .seed = seed};
      request.logprobs = true;
      if (seed % 2 == 1) request.grammar = nullptr;
      expected.push_back(patient.Run(request));
      streams.push_back(test.Submit(request));
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      ExpectSame(ReadAll(streams[i].get()), expected[i]);
    }
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

constexpr char kEnd[] = "</t>";

// Returns a limit on the reasoning between <t> and </t>.
ReasoningLimit Limit(int64_t max_tokens) {
  return {.open = true,
          .begin = "<t>",
          .begin_tokens = fakes::ByteTokens("<t>"),
          .end = {.text = kEnd},
          .max_tokens = max_tokens,
          .end_tokens = fakes::ByteTokens(kEnd)};
}

GenerationRequest Limited(int64_t max_tokens, GrammarCache* cache) {
  GenerationRequest request = MakeRequest({1, 2, 3}, 60);
  request.sampling = {.temperature = 1.5, .seed = 3};
  request.reasoning_limit = Limit(max_tokens);
  request.token_trie = cache->trie();
  return request;
}

TEST(ReasoningLimitTest, TheEndMarkerComesAfterTheLimit) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request = Limited(0, &cache);
  request.reasoning_limit.reset();
  const Answer free = test.Run(request);
  const auto free_token = [&free](size_t i) { return free.tokens[i]; };
  for (const int64_t limit : {0, 1, 9}) {
    const Answer answer = test.Run(Limited(limit, &cache));
    ASSERT_EQ(answer.tokens.size(), 60u);
    for (int64_t i = 0; i < limit; ++i) EXPECT_EQ(answer.tokens[i], free_token(i));
    const auto end = answer.tokens.begin() + limit;
    EXPECT_EQ(std::vector<int32_t>(end, end + 4), fakes::ByteTokens(kEnd));
  }
}

TEST(ReasoningLimitTest, EveryTokenMayComeFirstInALaterAttempt) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  const GenerationRequest request = Limited(7, &cache);
  const Answer whole = test.Run(request);
  for (size_t cut = 1; cut < 16; ++cut) {
    GenerationRequest rest = request;
    rest.token_ids.insert(rest.token_ids.end(), whole.tokens.begin(), whole.tokens.begin() + cut);
    const Answer answer = test.Run(std::move(rest));
    EXPECT_EQ(std::vector<int32_t>(whole.tokens.begin() + cut, whole.tokens.end()), answer.tokens);
  }
}

TEST(ReasoningLimitTest, TheForcedTokensHaveTheirLogprobs) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request = Limited(2, &cache);
  const Answer plain = test.Run(request);
  request.logprobs = true;
  const Answer answer = test.Run(request);
  EXPECT_EQ(answer.tokens, plain.tokens);
  ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
  EXPECT_EQ(answer.logprobs[2].token_id, '<');
}

// Returns the tokens that are forced in an output of these texts, as text.
std::string ForcedAfter(const ReasoningLimit& limit, const std::string& text,
                        const std::shared_ptr<const grammar::TokenTrie>& trie) {
  ReasoningTracker tracker(limit, trie);
  for (const int32_t token : fakes::ByteTokens(text)) tracker.Add(token);
  std::string forced;
  for (auto next = tracker.forced(); next.has_value(); next = tracker.forced()) {
    forced.push_back(static_cast<char>(*next));
    tracker.Add(*next);
  }
  return forced;
}

TEST(ReasoningLimitTest, OnlyReasoningCounts) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  const auto trie = std::make_shared<const grammar::TokenTrie>(*tokenizer);
  EXPECT_EQ(ForcedAfter(Limit(3), "ab", trie), "");
  EXPECT_EQ(ForcedAfter(Limit(3), "abc", trie), kEnd);
  EXPECT_EQ(ForcedAfter(Limit(3), "abc<", trie), "/t>");
  EXPECT_EQ(ForcedAfter(Limit(4), "</t>", trie), "");
  EXPECT_EQ(ForcedAfter(Limit(3), "</t>", trie), "");
  EXPECT_EQ(ForcedAfter(Limit(5), "a</t>bcdefgh", trie), "");
  ReasoningLimit closed = Limit(3);
  closed.open = false;
  EXPECT_EQ(ForcedAfter(closed, "abcdefgh<t>abcdef", trie), "");
  EXPECT_EQ(ForcedAfter(closed, "\n<t>abc", trie), kEnd);
  EXPECT_EQ(ForcedAfter(closed, "<t>ab", trie), "");
  closed.begin = "<|start|>a";
  closed.begin_tokens = {fakes::kStartToken, 'a'};
  closed.end = {.text = "opera", .token = fakes::kOperaToken};
  closed.end_tokens = {fakes::kOperaToken};
  ReasoningTracker tracker(closed, trie);
  tracker.Add(fakes::kStartToken);
  for (const char c : std::string("aabc")) tracker.Add(c);
  EXPECT_EQ(tracker.forced(), fakes::kOperaToken);
  tracker.Add(fakes::kOperaToken);
  EXPECT_EQ(tracker.forced(), std::nullopt);
}

// Returns a grammar with reasoning before a choice.
std::shared_ptr<const grammar::Grammar> ChoiceAfterReasoning() {
  grammar::GrammarIr ir;
  const grammar::Reasoning reasoning = {.end = {.text = kEnd},
                                        .start = grammar::ReasoningStart::kOpen};
  const grammar::Expr choice =
      grammar::EmitGrammar({.kind = GrammarKind::kChoice, .choices = {"yes", "no"}}, nullptr, &ir)
          .value();
  ir.set_start(grammar::AfterReasoning(reasoning, choice, grammar::OpenEnd::kRefused, &ir));
  EXPECT_TRUE(ir.Finish().ok());
  return std::make_shared<const grammar::Grammar>(std::move(ir));
}

TEST(ReasoningLimitTest, TheConstraintBeginsAfterTheForcedMarker) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  for (uint64_t seed = 0; seed < 8; ++seed) {
    GenerationRequest request = Limited(12, &cache);
    request.stopping.ignore_eos = false;
    request.sampling.seed = seed;
    request.grammar = ChoiceAfterReasoning();
    const Answer answer = test.Run(request);
    EXPECT_EQ(answer.finish, FinishReason::kStop);
    EXPECT_TRUE(answer.text.ends_with("</t>yes") || answer.text.ends_with("</t>no"));
    for (size_t cut = 1; cut < answer.tokens.size(); ++cut) {
      GenerationRequest rest = request;
      rest.token_ids.insert(rest.token_ids.end(), answer.tokens.begin(),
                            answer.tokens.begin() + cut);
      EXPECT_EQ(test.Run(rest).tokens.size(), answer.tokens.size() - cut);
    }
  }
}

TEST(ReasoningLimitTest, PreemptionChangesNothing) {
  TestEngine large;
  GrammarCache cache(large.tokenizer.get());
  std::vector<GenerationRequest> requests;
  std::vector<Answer> expected;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    requests.push_back(Limited(70, &cache));
    requests.back().sampling.seed = seed;
    requests.back().stopping.max_tokens = 150;
    expected.push_back(large.Run(requests.back()));
  }
  EngineOptions options = MakeOptions();
  options.kv_memory_bytes = MemoryOfBlocks(12);
  TestEngine small(options);
  small.model.Hold();
  std::vector<std::unique_ptr<Stream>> streams;
  streams.reserve(requests.size());
  for (const GenerationRequest& request : requests) streams.push_back(small.Submit(request));
  small.model.Release();
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(ReadAll(streams[i].get()).tokens, expected[i].tokens);
  }
  EXPECT_GT(small.engine->Stats().preemptions, 0);
}

TEST(ConstraintTest, AnEndThatIsCertainIsGeneratedOnlyForItsLogprob) {
  TestEngine test;
  GrammarCache cache(test.tokenizer.get());
  GenerationRequest request =
      Constrained({.kind = GrammarKind::kChoice, .choices = {"yes", "no"}}, &cache);
  // The text "s" could be the beginning of the stop string, so it is only sent at the end.
  request.stopping.stop = {"s!", "o!"};
  const Answer answer = test.Run(request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_TRUE(answer.text == "yes" || answer.text == "no") << answer.text;
  EXPECT_EQ(answer.tokens, fakes::ByteTokens(answer.text));
  EXPECT_EQ(answer.usage.completion_tokens, static_cast<int64_t>(answer.tokens.size()));
  request.logprobs = true;
  const Answer with_logprobs = test.Run(request);
  EXPECT_EQ(with_logprobs.text, answer.text);
  EXPECT_EQ(with_logprobs.tokens.size(), answer.tokens.size() + 1);
  // An earlier attempt may have reached the end of the output without reporting it.
  request.logprobs = false;
  request.token_ids.insert(request.token_ids.end(), answer.tokens.begin(), answer.tokens.end());
  const Answer rest = test.Run(request);
  EXPECT_EQ(rest.finish, FinishReason::kStop);
  EXPECT_TRUE(rest.tokens.empty());
}

TEST(GrammarCacheTest, KeepsTheGrammarsThatWereUsedLast) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  GrammarCache cache(tokenizer.get());
  const auto get = [&cache](int number) {
    return Compiled({.kind = GrammarKind::kRegex, .text = "a{" + std::to_string(number) + "}"},
                    &cache);
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
