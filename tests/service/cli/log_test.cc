#include "service/cli/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {
namespace {

TEST(LogTextTest, FieldsFollowTheLine) {
  EXPECT_EQ(
      LogText("request ended",
              {{"request_id", "gen-1"}, {"output_tokens", int64_t{3}}, {"duration_seconds", 0.25}}),
      "request ended request_id=gen-1 output_tokens=3 duration_seconds=0.25");
}

TEST(LogTextTest, UntrustedTextBeginsNoLineOrField) {
  const std::string text = LogText("a\nb", {{"session_id", "x\ny principal=root"}, {"empty", ""}});
  EXPECT_EQ(text, R"(a b session_id="x\ny principal=root" empty="")");
  EXPECT_EQ(LogText("", {{"q", "say \"a=b\""}}), R"( q="say \"a=b\"")");
}

TEST(LogTextTest, UntrustedTextDoesNotActOnATerminal) {
  EXPECT_EQ(LogText("a\xC2\x9B", {{"id", "\xE2\x80\xAEx\xC2\x85"}}),
            R"(a\u009b id="\u202ex\u0085")");
}

TEST(LogMembersTest, AreAnObjectWhateverTheTextsHold) {
  const std::string members =
      LogMembers("it \"said\"\n", {{"a", "\xff{}"}, {"b", int64_t{-1}}, {"c", 1.5}});
  const auto object = nlohmann::json::parse("{" + members + "}");
  EXPECT_EQ(object["message"], "it \"said\"\n");
  EXPECT_EQ(object["a"], "\xEF\xBF\xBD{}");
  EXPECT_EQ(object["b"], -1);
  EXPECT_EQ(object["c"], 1.5);
  EXPECT_FALSE(absl::StrContains(members, "\n"));
}

TEST(DroppedLinesNoteTest, IsALineOfEachFormat) {
  const auto object = nlohmann::json::parse(DroppedLinesNote(LogFormat::kJson, 2));
  EXPECT_EQ(object["message"], "2 log lines were dropped: they could not be written in time");
  EXPECT_EQ(object["level"], "warning");
  const std::string text = DroppedLinesNote(LogFormat::kText, 1);
  EXPECT_TRUE(
      absl::EndsWith(text, " warning 1 log line was dropped: they could not be written in time\n"))
      << text;
}

TEST(LogTest, LinesBelowTheLevelAreDroppedAndTheLevelMayChange) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    LineWriter writer(ends[1], {});
    Log log(LogLevel::kWarn, LogFormat::kJson, &writer);
    const LogSink sink = log.Sink();
    sink(LogLevel::kInfo, "one");
    sink(LogLevel::kWarn, "two");
    log.SetLevel(LogLevel::kDebug);
    sink(LogLevel::kDebug, "three", {{"n", int64_t{3}}});
    EXPECT_EQ(sink.dropped_lines(), 0);
  }
  close(ends[1]);
  std::string text(1 << 16, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  text.resize(size < 0 ? 0 : size);
  close(ends[0]);
  std::vector<std::string> messages;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto object = nlohmann::json::parse(line);
    messages.push_back(object["message"]);
    EXPECT_TRUE(object.contains("time"));
    EXPECT_EQ(object["level"], messages.size() == 1 ? "warning" : "debug");
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"two", "three"}));
}

}  // namespace
}  // namespace tidepool::service
