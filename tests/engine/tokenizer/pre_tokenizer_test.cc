#include "engine/tokenizer/pre_tokenizer.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/tokenizer/test_vocabulary.h"

namespace tidepool::engine {
namespace {

std::vector<std::string> Split(absl::string_view pre, absl::string_view text) {
  auto rules = FindPreTokenizerRules(pre);
  EXPECT_TRUE(rules.ok()) << rules.status();
  auto pre_tokenizer = PreTokenizer::Create(rules->passes);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  std::vector<std::string> pieces;
  const auto status = pre_tokenizer->Split(
      text, [&pieces](absl::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(PreTokenizerTest, SplitsAsTokenizersDoes) {
  const auto golden = ReadGolden("tokenizer_golden.json");
  ASSERT_GE(golden["splits"].size(), 9u);
  for (const auto& [pre, expected] : golden["splits"].items()) {
    auto rules = FindPreTokenizerRules(pre);
    ASSERT_TRUE(rules.ok()) << rules.status();
    auto pre_tokenizer = PreTokenizer::Create(rules->passes);
    ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
    ASSERT_EQ(expected.size(), golden["lines"].size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto line = golden["lines"][i].get<std::string>();
      std::vector<size_t> sizes;
      std::string joined;
      ASSERT_TRUE(pre_tokenizer
                      ->Split(line,
                              [&](absl::string_view piece) {
                                sizes.push_back(piece.size());
                                joined += std::string(piece);
                              })
                      .ok());
      EXPECT_EQ(joined, line);
      EXPECT_EQ(sizes, expected[i].get<std::vector<size_t>>()) << pre << ": " << line;
    }
  }
}

TEST(PreTokenizerTest, DefaultRuleCutsPunctuationAndGroupsOfThreeDigits) {
  EXPECT_EQ(Split("", "Ab 12345, x"), (Pieces{"Ab", " ", "123", "45", ",", " x"}));
  EXPECT_EQ(Split("default", "a+b"), (Pieces{"a", "+", "b"}));
}

TEST(PreTokenizerTest, LookaheadEndsWithThePiece) {
  // The digit is split off first. Then the two spaces before it are at the end of a piece, so they
  // stay together.
  EXPECT_EQ(Split("smollm", "a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(Split("gpt-2", "a  1"), (Pieces{"a", " ", " 1"}));
}

TEST(PreTokenizerTest, TextThatNoAlternativeMatchesIsAPiece) {
  EXPECT_EQ(Split("gpt-2", "a\tb"), (Pieces{"a", "\t", "b"}));
}

TEST(PreTokenizerTest, MongolianVowelSeparatorIsNotASpace) {
  EXPECT_EQ(Split("gpt-2", " \u180e"), (Pieces{" \u180e"}));
}

TEST(PreTokenizerTest, UnknownNameListsTheKnownOnes) {
  const auto rules = FindPreTokenizerRules("nonesuch");
  ASSERT_EQ(rules.status().code(), absl::StatusCode::kUnimplemented);
  const std::string message(rules.status().message());
  EXPECT_NE(message.find("'nonesuch'"), std::string::npos) << message;
  EXPECT_NE(message.find("llama-bpe"), std::string::npos) << message;
}

TEST(PreTokenizerTest, BrokenPatternIsInternal) {
  const auto made = PreTokenizer::Create({"("});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInternal);
}

TEST(PreTokenizerTest, HanIsCutFromTheLettersBesideIt) {
  EXPECT_EQ(Split("kimi-k2", "Abc\u4e2d\u6587\u3005d\u3042E's 12345"),
            (Pieces{"Abc", "\u4e2d\u6587\u3005", "d\u3042", "E's", " ", "123", "45"}));
}

// For every set of rules, tries texts on which a naive matcher takes quadratic time or overflows
// the stack.
TEST(PreTokenizerTest, LongRunsAreLinear) {
  constexpr size_t kSize = 300'000;
  std::set<std::vector<std::string>> seen;
  for (const std::string& pre : KnownPreTokenizers()) {
    auto rules = FindPreTokenizerRules(pre);
    ASSERT_TRUE(rules.ok()) << rules.status();
    if (!seen.insert(rules->passes).second) continue;
    auto pre_tokenizer = PreTokenizer::Create(rules->passes);
    ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
    for (const std::string unit :
         {"a", "A", " ", "\n", "1", "!", "\u4e2d", " \n", "\u0301", "'s", "aA", "\r", "' ", " a"}) {
      std::string text;
      while (text.size() < kSize) text += unit;
      size_t total = 0;
      const auto status =
          pre_tokenizer->Split(text, [&total](absl::string_view piece) { total += piece.size(); });
      EXPECT_TRUE(status.ok()) << pre << " '" << unit << "' " << status;
      EXPECT_EQ(total, text.size());
    }
  }
  EXPECT_GE(seen.size(), 19u);
}

}  // namespace
}  // namespace tidepool::engine
