#include "engine/grammar/output_regions.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "gtest/gtest.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine::grammar {
namespace {

constexpr char kStartText[] = "<|start|>";

// `ir` is a reference, because the expression for `start` may add to it in the same call.
std::shared_ptr<const Grammar> Finished(Expr start, const GrammarIr& ir) {
  GrammarIr copy = ir;
  copy.set_start(start);
  const absl::Status finished = copy.Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  return std::make_shared<const Grammar>(std::move(copy));
}

bool Accepts(const std::shared_ptr<const Grammar>& grammar, absl::string_view text) {
  Matcher matcher(grammar, nullptr);
  return matcher.AcceptText(text) == text.size() && matcher.accepts();
}

bool Accepts(Expr start, const GrammarIr& ir, absl::string_view text) {
  return Accepts(Finished(start, ir), text);
}

Expr Json(GrammarIr* ir) {
  return EmitGrammar({.kind = GrammarKind::kJsonSchema, .text = R"({"type": "object"})"}, nullptr,
                     ir)
      .value();
}

Reasoning Think(ReasoningStart start, GrammarIr* ir) {
  RegexPool& pool = ir->regexes();
  return {.begin = pool.Literal("<think>"),
          .end = {.text = "</think>"},
          .after = pool.Repeat(pool.Literal("\n"), 0, 2),
          .start = start};
}

TEST(OutputRegionsTest, TextThroughAMarkerEndsAtItsFirstOccurrence) {
  GrammarIr ir;
  const Marker marker = {.text = "aab"};
  const auto through = Finished(ir.Match(TextThrough(marker, &ir.regexes())), ir);
  EXPECT_TRUE(Accepts(through, "aab"));
  EXPECT_TRUE(Accepts(through, "x aaaab"));
  EXPECT_TRUE(Accepts(through,
                      "\x80\xff"
                      "aab") == false);  // 0xFF begins token terms
  EXPECT_TRUE(Accepts(through,
                      "\x80"
                      "aab"));
  EXPECT_FALSE(Accepts(through, "aabaab"));
  EXPECT_FALSE(Accepts(through, "aa"));
  const auto without = Finished(ir.Match(TextWithout(marker, &ir.regexes())), ir);
  EXPECT_TRUE(Accepts(without, ""));
  EXPECT_TRUE(Accepts(without, "aaXab aa"));
  EXPECT_FALSE(Accepts(without, "aaab"));
}

TEST(OutputRegionsTest, AConstraintBeginsAfterTheReasoning) {
  GrammarIr ir;
  const Expr json = Json(&ir);
  const auto open =
      Finished(AfterReasoning(Think(ReasoningStart::kOpen, &ir), json, OpenEnd::kRefused, &ir), ir);
  EXPECT_TRUE(Accepts(open, "so {</think>\n\n{\"a\": 1}"));
  EXPECT_TRUE(Accepts(open, "</think>{}"));
  EXPECT_TRUE(Accepts(open, "<think></think>{}"));
  EXPECT_FALSE(Accepts(open, "{}"));
  EXPECT_FALSE(Accepts(open, "a</think>b</think>{}"));
  EXPECT_FALSE(Accepts(open, "a</think>\n\n\n{}"));
  EXPECT_FALSE(Accepts(open, "a</think>"));
  // A marker inside of the constrained text has no meaning.
  EXPECT_TRUE(Accepts(open, "a</think>{\"a\": \"<think></think>\"}"));
  EXPECT_FALSE(Accepts(open, "a</think>{\"a\": \"<think>\"} b</think>{}"));

  const auto optional = Finished(
      AfterReasoning(Think(ReasoningStart::kOptional, &ir), json, OpenEnd::kRefused, &ir), ir);
  EXPECT_TRUE(Accepts(optional, "{}"));
  EXPECT_TRUE(Accepts(optional, "<think>\nhm</think>\n\n{}"));
  EXPECT_FALSE(Accepts(optional, "hm</think>{}"));
  EXPECT_FALSE(Accepts(optional, "<think>hm"));

  const auto none =
      Finished(AfterReasoning(Think(ReasoningStart::kNone, &ir), json, OpenEnd::kRefused, &ir), ir);
  EXPECT_FALSE(Accepts(none, "<think></think>{}"));

  const auto may_end =
      Finished(AfterReasoning(Think(ReasoningStart::kOpen, &ir), json, OpenEnd::kAllowed, &ir), ir);
  EXPECT_TRUE(Accepts(may_end, "still thinking"));
  EXPECT_FALSE(Accepts(may_end, "a</think>still thinking"));
}

TEST(OutputRegionsTest, FreeTextHasParts) {
  GrammarIr ir;
  const Marker marker = {.text = "<call>"};
  const Expr part = ir.Seq({Json(&ir), ir.Match(ir.regexes().Literal("</call>"))});
  const auto many = Finished(FreeTextWithParts(marker, part, Parts::kMany, &ir), ir);
  EXPECT_TRUE(Accepts(many, ""));
  EXPECT_TRUE(Accepts(many, "only <cal text"));
  EXPECT_TRUE(Accepts(many, "a <call>{}</call> b <call>{\"x\": 1}</call> c"));
  EXPECT_FALSE(Accepts(many, "a <call>"));
  EXPECT_FALSE(Accepts(many, "a <call>{}</call> <call>[]</call>"));
  const auto one = Finished(FreeTextWithParts(marker, part, Parts::kOne, &ir), ir);
  EXPECT_TRUE(Accepts(one, "a <call>{}</call>\n"));
  EXPECT_FALSE(Accepts(one, "a <call>{}</call> b"));
  EXPECT_FALSE(Accepts(one, "<call>{}</call><call>{}</call>"));
}

TEST(OutputRegionsTest, TextNotBeginningWithACharacterSkipsWhiteSpace) {
  GrammarIr ir;
  const Expr text = ir.Match(TextNotBeginning('{', &ir.regexes()));
  EXPECT_TRUE(Accepts(text, ir, ""));
  EXPECT_TRUE(Accepts(text, ir, " a{"));
  EXPECT_FALSE(Accepts(text, ir, "\n {"));
}

TEST(OutputRegionsTest, AControlTokenIsTheOnlySpellingOfItsMarker) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
  const ResponseTexts texts(tokenizer.get(), {kStartText, "opera", "<x>"});
  EXPECT_EQ(texts.MarkerOf(kStartText), (Marker{kStartText, fakes::kStartToken}));
  EXPECT_EQ(texts.MarkerOf("opera"), Marker{"opera"});  // an ordinary token
  GrammarIr ir;
  RegexPool& pool = ir.regexes();
  const Expr start = ir.Match(pool.Concat(TextThrough(texts.MarkerOf(kStartText), &pool),
                                          texts.Match("b<|start|>", &pool)));
  Matcher matcher(Finished(start, ir), trie);
  for (const char c : std::string(kStartText)) EXPECT_TRUE(matcher.AcceptToken(c));
  EXPECT_TRUE(matcher.AcceptToken(fakes::kStartToken));
  EXPECT_FALSE(matcher.AcceptToken(fakes::kStartToken));
  EXPECT_TRUE(matcher.AcceptToken('b'));
  EXPECT_FALSE(matcher.complete());
  TokenMask mask(trie->vocab_size());
  matcher.FillMask(&mask);
  EXPECT_EQ(mask.Only(), fakes::kStartToken);
  EXPECT_TRUE(matcher.AcceptToken(fakes::kStartToken));
  EXPECT_TRUE(matcher.complete());
}

}  // namespace
}  // namespace tidepool::engine::grammar
