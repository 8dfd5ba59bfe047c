#include <string>
#include <vector>

#include "engine/grammar/number_regex.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/regex_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::engine::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool Matches(const std::string& pattern, const std::string& text,
             RegexScope scope = RegexScope::kWhole) {
  RegexPool pool;
  const absl::StatusOr<Regex> regex = ParseRegex(pattern, scope, &pool);
  EXPECT_TRUE(regex.ok()) << regex.status();
  return regex.ok() && pool.Matches(*regex, text);
}

std::string ErrorOf(const std::string& pattern, RegexScope scope = RegexScope::kWhole) {
  RegexPool pool;
  const absl::StatusOr<Regex> regex = ParseRegex(pattern, scope, &pool);
  return regex.ok() ? "compiled" : std::string(regex.status().message());
}

TEST(RegexTest, MatchesTheWholeText) {
  EXPECT_TRUE(Matches("a(b|cd)*", "abcdb"));
  EXPECT_FALSE(Matches("a(b|cd)*", "abc"));
  EXPECT_TRUE(Matches("^a$", "a"));
  EXPECT_TRUE(Matches("(^a|b)c?", "ac"));
  EXPECT_FALSE(Matches("a^b", "ab"));
  EXPECT_TRUE(Matches("x{2,3}?", "xx"));
  EXPECT_TRUE(Matches("x{,2}", "x{,2}"));
  EXPECT_TRUE(Matches("", ""));
}

TEST(RegexTest, CharactersAreCodePoints) {
  EXPECT_TRUE(Matches(".", "\u00e9"));
  EXPECT_TRUE(Matches("[^a]", "\U0001F600"));
  EXPECT_TRUE(Matches("\\u{1F600}\\x41\\u00e9\\cJ", "\U0001F600A\u00e9\n"));
  EXPECT_TRUE(Matches("[\\u00e0-\\u00ff]+", "\u00e9\u00ff"));
  EXPECT_FALSE(Matches(".", "\n"));
  EXPECT_FALSE(Matches(".", "\xff"));
  EXPECT_TRUE(Matches("\\p{Lu}\\P{L}", "\u00c91"));
  EXPECT_TRUE(Matches("[\\d\\s_-]+", "1 _-"));
}

TEST(RegexTest, SearchFindsAPart) {
  EXPECT_TRUE(Matches("b", "abc", RegexScope::kSearch));
  EXPECT_FALSE(Matches("^b", "abc", RegexScope::kSearch));
  EXPECT_TRUE(Matches("c$|^x", "abc", RegexScope::kSearch));
  EXPECT_TRUE(Matches("^(?!foo)[a-z]+$", "fob", RegexScope::kSearch));
  EXPECT_FALSE(Matches("^(?!foo)[a-z]+$", "foob", RegexScope::kSearch));
  EXPECT_TRUE(Matches("^(?=.*[0-9])(?=.*[a-z]).{3}$", "1xx", RegexScope::kSearch));
  EXPECT_FALSE(Matches("^(?=.*[0-9])(?=.*[a-z]).{3}$", "xxx", RegexScope::kSearch));
}

TEST(RegexTest, ErrorsNameTheOffsetAndTheReason) {
  EXPECT_THAT(ErrorOf("a(b"), AllOf(HasSubstr("offset 3"), HasSubstr("')'")));
  EXPECT_THAT(ErrorOf("a)"), HasSubstr("without '('"));
  EXPECT_THAT(ErrorOf("(a)\\1"), HasSubstr("back-references"));
  EXPECT_THAT(ErrorOf("(?<n>a)\\k<n>"), HasSubstr("back-references"));
  EXPECT_THAT(ErrorOf("a(?=b)"), HasSubstr("look-ahead"));
  EXPECT_THAT(ErrorOf("(?<=a)b", RegexScope::kSearch), HasSubstr("look-behind"));
  EXPECT_THAT(ErrorOf("\\bfoo"), HasSubstr("word boundaries"));
  EXPECT_THAT(ErrorOf("(^a)*"), HasSubstr("inside a repetition"));
  EXPECT_THAT(ErrorOf("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(ErrorOf("a**"), HasSubstr("two quantifiers"));
  EXPECT_THAT(ErrorOf("[b-a]"), HasSubstr("out of order"));
  EXPECT_THAT(ErrorOf("a{3,2}"), HasSubstr("out of order"));
  EXPECT_THAT(ErrorOf("a{200000}"), HasSubstr("100000"));
  EXPECT_THAT(ErrorOf("(?i)a"), HasSubstr("unknown kind of group"));
  EXPECT_THAT(ErrorOf("\\p{Greek}"), HasSubstr("general category"));
  EXPECT_THAT(ErrorOf("\\p{\n}"), HasSubstr("\\p{\\x0a} is not supported"));
  EXPECT_THAT(ErrorOf(std::string(200, '(')), HasSubstr("100 levels"));
  EXPECT_THAT(ErrorOf(std::string(20'000, 'a')), HasSubstr("the limit is 16384"));
}

TEST(RegexPoolTest, ComplementAndIntersectionFindEmptyLanguages) {
  RegexPool pool;
  const Regex letters = pool.Repeat(pool.Bytes(ByteRange('a', 'z')), 1, kNoLimit);
  const Regex two = pool.Repeat(pool.Bytes(ByteRange('a', 'z')), 2, 2);
  EXPECT_FALSE(pool.IsNothing(pool.And({letters, pool.Not(two)})));
  EXPECT_TRUE(pool.IsNothing(pool.And({two, pool.Not(letters)})));
  EXPECT_EQ(pool.And({letters, pool.Not(letters)}), kNoRegex);
  EXPECT_EQ(pool.And({letters, two, pool.Not(pool.And({letters, two}))}), kNoRegex);
  EXPECT_EQ(pool.Not(pool.Not(two)), two);
  EXPECT_EQ(pool.Or({letters, kNoRegex}), letters);
}

TEST(RegexPoolTest, LiteralsMatchEachTextAndNoOther) {
  RegexPool pool;
  EXPECT_EQ(pool.Literals({}), kNoRegex);
  EXPECT_EQ(pool.Literals({""}), kEmptyRegex);
  EXPECT_EQ(pool.Literals({"abc", "abc"}), pool.Literal("abc"));
  const std::vector<std::string> texts = {"", "a", "abc", "abd", "b", "bcd", "ccd", "\xC3\xA9"};
  const Regex any = pool.Literals(texts);
  for (const std::string& text : texts) EXPECT_TRUE(pool.Matches(any, text)) << text;
  for (const char* text : {"ab", "abcd", "bc", "c", "ac", "\xC3"}) {
    EXPECT_FALSE(pool.Matches(any, text)) << text;
  }
  const std::string text(100'000, 'x');
  EXPECT_TRUE(pool.Matches(pool.Literals({text, text + "y", text + "z"}), text + "z"));
}

TEST(RegexPoolTest, FreeCharactersAreThoseThatMayCertainlyCome) {
  RegexPool pool;
  const auto in_string = [&pool](Regex content) {
    return pool.FreeCharacters(pool.Derive(pool.Quoted(content, Escapes::kAny), '"'));
  };
  EXPECT_EQ(in_string(pool.AnyText()), kNoLimit);
  EXPECT_EQ(in_string(pool.Repeat(pool.AnyCharacter(), 2, 40)), 40);
  const Regex names = pool.Or({pool.Literal("name"), pool.Literal("names")});
  EXPECT_EQ(in_string(pool.And({pool.AnyText(), pool.Not(names)})), kNoLimit);
  const Regex letters = pool.Repeat(pool.Bytes(ByteRange('a', 'z')), 1, kNoLimit);
  EXPECT_EQ(in_string(pool.And({pool.AnyText(), pool.Not(letters)})), 0);
  EXPECT_EQ(in_string(letters), 0);
  EXPECT_EQ(pool.FreeCharacters(pool.AnyText()), 0);
}

// Compares the regular expressions with arithmetic, on all decimals of up to two digits before and
// after the point.
TEST(NumberRegexTest, BoundsAndMultiplesEqualArithmetic) {
  RegexPool pool;
  NumberRegexes numbers(&pool);
  for (const char* bound : {"0", "5", "-5", "10", "0.5", "-2.25", "12.75", "99.99"}) {
    const Decimal limit = *Decimal::Parse(bound);
    const Regex at_least = numbers.AtLeast(limit), greater = numbers.GreaterThan(limit);
    const Regex equal = numbers.Equal(limit);
    const Regex multiple =
        limit.is_zero() || limit.negative ? kNoRegex : *numbers.MultipleOf(limit);
    const int hundredths =
        static_cast<int>(std::stod(bound) * 100 + (bound[0] == '-' ? -0.5 : 0.5));
    for (int value = -2000; value <= 2000; ++value) {
      const int size = value < 0 ? -value : value;
      std::string text = (value < 0 ? "-" : "") + std::to_string(size / 100);
      if (size % 100 != 0) {
        text += "." + std::to_string(size % 100 / 10);
        if (size % 10 != 0) text += std::to_string(size % 10);
      }
      EXPECT_EQ(pool.Matches(at_least, text), value >= hundredths) << text << " >= " << bound;
      EXPECT_EQ(pool.Matches(greater, text), value > hundredths) << text << " > " << bound;
      EXPECT_EQ(pool.Matches(equal, text), value == hundredths) << text << " = " << bound;
      if (multiple == kNoRegex) continue;
      EXPECT_EQ(pool.Matches(multiple, text), value % hundredths == 0) << text << " by " << bound;
    }
  }
}

TEST(NumberRegexTest, DecimalsAreExact) {
  EXPECT_EQ(Decimal::Parse("1.50e2")->Text(), "150");
  EXPECT_EQ(Decimal::Parse("1e-8")->Text(), "0.00000001");
  EXPECT_EQ(Decimal::Parse("-0.0")->Text(), "0");
  EXPECT_EQ(Decimal::Parse("1e500"), std::nullopt);
}

TEST(RegexPoolTest, ClippedCountsMakeExpressionsEqual) {
  RegexPool pool;
  const Regex a = pool.Literal("a"), rest = pool.Literal("end");
  const auto clip = [&](int32_t min, int32_t max) {
    return pool.Clip(pool.Concat(pool.Repeat(a, min, max), rest), 100);
  };
  EXPECT_EQ(clip(500, 900), clip(499, 899));
  EXPECT_EQ(clip(0, 102), clip(0, kNoLimit));
  EXPECT_EQ(clip(3, 101), pool.Concat(pool.Repeat(a, 3, 101), rest));
  EXPECT_NE(clip(100, kNoLimit), clip(99, kNoLimit));
  const auto string = [&](int32_t max) {
    return pool.Clip(pool.Quoted(pool.Repeat(pool.AnyCharacter(), 0, max), Escapes::kAny), 100);
  };
  EXPECT_EQ(string(5000), string(4999));
  EXPECT_NE(string(50), string(49));
}

}  // namespace
}  // namespace tidepool::engine::grammar
