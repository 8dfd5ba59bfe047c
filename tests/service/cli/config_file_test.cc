#include "service/cli/config_file.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/base/files.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// The values of the single key in `content`.
std::vector<std::string> Values(const std::string& content) {
  const auto entries = ParseConfigFile("f.toml", content);
  EXPECT_TRUE(entries.ok()) << content << ": " << entries.status();
  if (!entries.ok()) return {};
  EXPECT_EQ(entries->size(), 1) << content;
  return entries->empty() ? std::vector<std::string>() : entries->front().values;
}

std::string Complaint(const std::string& content) {
  const auto entries = ParseConfigFile("f.toml", content);
  EXPECT_FALSE(entries.ok()) << content;
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(entries.status().message());
}

TEST(ConfigFileTest, EntriesComeInTheOrderOfLines) {
  const auto entries = ParseConfigFile(
      "f.toml",
      "\xEF\xBB\xBF# first\r\n\r\n b = 1 # one\n\"c d\"=[ # list\n\n 2\n, 3, ] \n'a' = 4");
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3);
  EXPECT_EQ((*entries)[0].key, "b");
  EXPECT_EQ((*entries)[0].line, 3);
  EXPECT_EQ((*entries)[1].key, "c d");
  EXPECT_EQ((*entries)[1].line, 4);
  EXPECT_THAT((*entries)[1].values, ElementsAre("2", "3"));
  EXPECT_EQ((*entries)[2].key, "a");
  EXPECT_EQ((*entries)[2].line, 8);
  EXPECT_TRUE(ParseConfigFile("f", "")->empty());
  EXPECT_TRUE(ParseConfigFile("f", "# only\n\n")->empty());
}

TEST(ConfigFileTest, Strings) {
  EXPECT_THAT(Values(R"(k = "a\"b\\c\t\u00e9\U0001F30A")"),
              ElementsAre("a\"b\\c\t\u00e9\U0001F30A"));
  EXPECT_THAT(Values(R"(k = 'C:\new "x"')"), ElementsAre(R"(C:\new "x")"));
  EXPECT_THAT(Values("k = ''"), ElementsAre(""));
  EXPECT_THAT(Values("k = \"\"\"\none\ntwo \\  \n  \n three\"\"\""), ElementsAre("one\ntwo three"));
  EXPECT_THAT(Values("k = '''\r\none\\\r\ntwo'''"), ElementsAre("one\\\ntwo"));
  EXPECT_THAT(Values(R"(k = """"a""b""""")"), ElementsAre("\"a\"\"b\"\""));
  EXPECT_THAT(Values("k = '''''''"), ElementsAre("'"));
  EXPECT_THAT(Values("k = \"# no comment\" # one"), ElementsAre("# no comment"));
}

TEST(ConfigFileTest, NumbersComeAsACommandLineHasThem) {
  EXPECT_THAT(Values("k = [0, -0, +7, 1_000, 0xfF, 0o17, 0b1_1, 9223372036854775807]"),
              ElementsAre("0", "0", "7", "1000", "255", "15", "3", "9223372036854775807"));
  EXPECT_THAT(Values("k = [0.7, +1_0.0_1, 1e-05, -2E+3, 1.5e3, inf, -nan]"),
              ElementsAre("0.7", "10.01", "1e-05", "-2000", "1500", "inf", "nan"));
  EXPECT_THAT(Values("k = [true, false]"), ElementsAre("true", "false"));
  EXPECT_THAT(Values("k = []"), IsEmpty());
  for (const std::string bad : {"01",         "1__0",     "_1",   "1_",     "1.",
                                ".1",         "1e",       "0x",   "0xg",    "0b2",
                                "-0x1",       "1.e1",     "--1",  "+-1",    "9223372036854775808",
                                "1979-05-27", "07:32:00", "True", "m.gguf", "1 2",
                                "tru",        "0.1.2"}) {
    EXPECT_THAT(Complaint(absl::StrCat("k = ", bad)), StartsWith("f.toml: line 1: ")) << bad;
  }
  EXPECT_THAT(Complaint("\nmodel = m.gguf"),
              AllOf(HasSubstr("line 2"), HasSubstr("texts are in quotes")));
}

TEST(ConfigFileTest, DamageIsNamedWithItsLine) {
  const std::pair<const char*, const char*> table[] = {
      {"= 3", "line 1: not TOML: "},
      {"\na", "line 2: not TOML: "},
      {"a\n= 1", "line 1: not TOML: "},
      {"a =", "line 1: not TOML: "},
      {"a = 1 b = 2", "saw 'b'"},
      {"a = 1\nb = 2\na = 3\n", "line 3: not TOML: "},
      {"a = 'x\n'", "line 1: not TOML: "},
      {"a = \"\"\"x\n\"", "not TOML: "},
      {"a = \"x\\", "not TOML: "},
      {"a = \"\\q\"", "unknown escape sequence '\\q'"},
      {"\"\"\"a\"\"\" = 1", "not TOML: "},
      {"a = [1 2]", "expected comma or closing ']'"},
      {"a = [,]", "saw comma"},
      {"a = [1,\n\n", "not TOML: "},
      {"a = 1\rb = 2", "line 1: not TOML: "},
      {"# \x7f", "line 1: not TOML: "},
      {"a = 1\n# \xC3\x28", "line 2: not TOML: "},
      {"model \u00d2g = 1", "line 1: not TOML: "},
  };
  for (const auto& [content, complaint] : table) {
    EXPECT_THAT(Complaint(content), AllOf(StartsWith("f.toml: line "), HasSubstr(complaint)));
    EXPECT_THAT(Complaint(content), Not(HasSubstr("\n")));
  }
  for (const std::string bad :
       {R"("\u12")", R"("\u12g4")", R"("\ud800")", R"("\U00110000")", R"("\U0001F")"}) {
    EXPECT_THAT(Complaint(absl::StrCat("a = ", bad)), HasSubstr("line 1: not TOML: ")) << bad;
  }
  EXPECT_THAT(Complaint(R"(a = "\u0000")"), HasSubstr("line 1: \"a\" holds the character U+0000"));
}

TEST(ConfigFileTest, CharactersThatAreNotAsciiAreInQuotesOrComments) {
  EXPECT_THAT(Values("\xEF\xBB\xBF# \u00d2\n\"\u00d2\" = '\u00d2' # \u00d2"),
              ElementsAre("\u00d2"));
  EXPECT_THAT(Values(R"(k = """\u00d2"\u00d2""\u00d2""""")"),
              ElementsAre("\u00d2\"\u00d2\"\"\u00d2\"\""));
  EXPECT_THAT(Values("k = \"\"\"\u00d2\"\n\u00d2\"\"\u00d2\"\"\"\"\""),
              ElementsAre("\u00d2\"\n\u00d2\"\"\u00d2\"\""));
  EXPECT_THAT(Values("k = '''\u00d2'\n\u00d2''\u00d2'''''"),
              ElementsAre("\u00d2'\n\u00d2''\u00d2''"));
  EXPECT_THAT(Values("k = \"\\\"\u00d2\\\\\" # \""), ElementsAre("\"\u00d2\\"));
  EXPECT_THAT(Values("k = \"\"\"\\\n \u00d2\\\"\"\"\u00d2\"\"\""),
              ElementsAre("\u00d2\"\"\"\u00d2"));
  const std::pair<const char*, const char*> table[] = {
      {"log-level \u00d2g\"\"\"", "line 1: not TOML: \"log-level \u00d2g"},
      {"a = 1\nb = \u00d2 # c", "line 2: not TOML: \"b = \u00d2 # c\": put keys and texts"},
      {"a = \"\"\"\"\"\"\u00d2", "line 1: not TOML: "},
      {"a = \"\"\"\n\"\"\"\u00d2 = '''", "line 2: not TOML: "},
      {"a = '''\n'''''\u00d2", "line 2: not TOML: "},
      {"# \"\n\u00d2 = 1", "line 2: not TOML: "},
      {"\xEF\xBB\xBF\xEF\xBB\xBF a = 1", "line 1: not TOML: "},
      {"\xFF\xFE a = 1", "line 1: not TOML: "},
      {"a = \"x\n\u00d2\"", "line 1: not TOML: no quote ends the text that begins with"},
      {"a = \"x\\\n\"", "line 1: not TOML: no quote ends the text"},
      {"a = 1\nb = \"\"\"x\n\\\"\"\"\n", "line 2: not TOML: no quote ends the text"},
      // The parser searches for the end of a number, and for the end of a line after a backslash.
      {"a = 3\"\u00d2\"", "line 1: not TOML: "},
      {"a = \"\"\"\\\u00d2\"\"\"", "line 1: not TOML: "},
  };
  for (const auto& [content, complaint] : table) {
    EXPECT_THAT(Complaint(content), AllOf(StartsWith("f.toml: "), HasSubstr(complaint))) << content;
  }
}

TEST(ConfigFileTest, NamesValuesThatNoFlagTakes) {
  EXPECT_THAT(Complaint("a = 1\n[serve]"), HasSubstr("line 2: \"serve\": keys are flags' names"));
  EXPECT_THAT(Complaint("serve . model = 'm'"), HasSubstr("\"serve\": keys are flags' names"));
  EXPECT_THAT(Complaint("a = {b = 1}"), HasSubstr("no flag takes a table"));
  EXPECT_THAT(Complaint("a = [1, [2]]"), HasSubstr("no flag takes lists or tables in a list"));
  EXPECT_THAT(Complaint("a = 1\nb = 1979-05-27"), HasSubstr("line 2: \"b\": no flag takes a date"));
}

TEST(ConfigFileTest, DepthAndLengthDoNoHarm) {
  EXPECT_THAT(Complaint(absl::StrCat("a = ", std::string(1 << 19, '['))), HasSubstr("not TOML"));
  std::string dotted = "a";
  for (int i = 0; i < 1 << 18; ++i) dotted += ".a";
  for (const std::string& deep :
       {dotted + " = 1", "[" + dotted + "]", "[[" + dotted + "]]", "a = {" + dotted + " = 1}",
        "a = {\n" + dotted + " = 1}", "a = {b = '''\n''', " + dotted + " = 1}"}) {
    EXPECT_LT(Complaint(deep).size(), 300);
    EXPECT_THAT(Complaint(deep), HasSubstr("keys are flags' names, without dots"));
  }
  std::string nested, end;
  for (int i = 0; i < 1000; ++i) {
    nested += "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = " + std::string(i % 2 == 0 ? "{" : "[\n{");
    end += i % 2 == 0 ? "}" : "}]";
  }
  EXPECT_LT(Complaint(nested + end).size(), 300);
  std::string numbers;
  for (int i = 0; i < 1000; ++i) numbers += "0.5, ";
  EXPECT_EQ(Values("k = [" + numbers + "]").size(), 1000);
  const std::string dots(1000, '.');
  EXPECT_THAT(Values("k = \"\"\"\n" + dots + "\"\"\" # " + dots), ElementsAre(dots));
  EXPECT_LT(Complaint(std::string(1 << 19, 'k')).size(), 300);
  EXPECT_LT(Complaint("k = " + std::string(1 << 19, '1')).size(), 300);
  EXPECT_EQ(Values("k = '" + std::string(1 << 19, 'v') + "'").front().size(), size_t{1} << 19);
}

TEST(ConfigFileTest, FilesWithoutEndAreRefused) {
  EXPECT_THAT(ReadConfigFile("/dev/zero").status().message(),
              HasSubstr("exceeds the limit of 1 MiB"));
  EXPECT_EQ(ReadConfigFile("/nonexistent.toml").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidepool::service
