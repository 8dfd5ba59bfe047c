#include "engine/grammar/gbnf.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/grammar/grammar_cases.h"

namespace tidepool::engine::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto grammar = CompileGrammar(Gbnf(text), nullptr);
  return grammar.ok() ? "compiled" : std::string(grammar.status().message());
}

TEST(GbnfTest, ReadsTheSyntaxOfLlamaCpp) {
  const auto grammar = Compiled(Gbnf(R"(# a comment
root  ::= (item "," )* item{0,1}   # another
item  ::= [a-z_]+ ("=" value)? |
          "\x41\u00e9\n"
value ::= [^,=\]\\-] . | "" |
          "<" [0-9]{2,} ">"
)"));
  for (const char* text : {"", "a", "abc,", "a=xy,b_", "A\u00e9\n", "a=\u00e9z", "q=<123>", "q="}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"=", "a=x", "A", "a=]y", "q=<1>,", "a,,", "a=-y"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(GbnfTest, ADashCanBeEscaped) {
  const auto grammar = Compiled(Gbnf(R"(root ::= [a\-c] "\-")"));
  for (const char* text : {"a-", "--", "c-"}) EXPECT_TRUE(Accepts(grammar, text)) << text;
  EXPECT_FALSE(Accepts(grammar, "b-"));
}

TEST(GbnfTest, CountsOfRulesAreBounded) {
  const auto grammar = Compiled(Gbnf("root ::= pair{2,3}\npair ::= x x\nx ::= \"a\" | \"b\" x\n"));
  EXPECT_TRUE(Accepts(grammar, "aaaa"));
  EXPECT_TRUE(Accepts(grammar, "bababbaabaa"));
  EXPECT_FALSE(Accepts(grammar, "aa"));
  EXPECT_FALSE(Accepts(grammar, "aaaaaaaa"));
}

TEST(GbnfTest, DeepNestingAndAmbiguityStaySmall) {
  const auto grammar =
      Compiled(Gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | root2\n"
                    "root2 ::= \"x\" | \"a\" root root2\n"));
  std::string text(3000, 'a');
  Matcher matcher(grammar, nullptr);
  EXPECT_EQ(matcher.AcceptText(text), text.size());
  EXPECT_EQ(matcher.AcceptText("x"), 1u);
}

TEST(GbnfTest, ErrorsNameTheLineAndTheReason) {
  EXPECT_THAT(ErrorOf("root ::= \"a\"\nitem = x"), AllOf(HasSubstr("line 2"), HasSubstr("::=")));
  EXPECT_THAT(ErrorOf("a ::= \"x\""), HasSubstr("no rule named root"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"\n  | other"), HasSubstr("line 2"));
  EXPECT_THAT(ErrorOf("root ::= other"), AllOf(HasSubstr("'other'"), HasSubstr("not defined")));
  EXPECT_THAT(ErrorOf("root ::= root \"a\" | \"b\""),
              AllOf(HasSubstr("'root'"), HasSubstr("left-recursive")));
  EXPECT_THAT(ErrorOf("root ::= x root | \"b\"\nx ::= \"\""), HasSubstr("left-recursive"));
  EXPECT_THAT(ErrorOf("root ::= \"a\" root"), HasSubstr("no text matches"));
  EXPECT_THAT(ErrorOf("root ::= [a"), HasSubstr("']'"));
  EXPECT_THAT(ErrorOf("root ::= (\"a\""), HasSubstr("')'"));
  EXPECT_THAT(ErrorOf("root ::= \"a"), HasSubstr("quotation mark"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"{3,2}"), HasSubstr("m <= n"));
  EXPECT_THAT(ErrorOf("root ::= <think>"), HasSubstr("vocabulary"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf("root ::= " + std::string(200, '(')), HasSubstr("100 levels"));
  EXPECT_EQ(ErrorOf("root ::= \"\\q\""), "GBNF, line 1: unknown escape \\q");
}

TEST(GbnfTest, ErrorsAreOneLine) {
  EXPECT_THAT(ErrorOf("root ::= [\\\n]"), HasSubstr("unknown escape \\\\x0a"));
  EXPECT_THAT(ErrorOf("root ::= \"\\\xC3\xA9\""), HasSubstr("unknown escape \\\xC3\xA9"));
}

}  // namespace
}  // namespace tidepool::engine::grammar
