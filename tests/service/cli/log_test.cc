#include "service/cli/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
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

TEST(LogTextTest, NothingOfAStrangerBeginsAnotherLineOrField) {
  const std::string text = LogText("a\nb", {{"session_id", "x\ny principal=root"}, {"empty", ""}});
  EXPECT_EQ(text, R"(a b session_id="x\ny principal=root" empty="")");
  EXPECT_EQ(LogText("", {{"q", "say \"a=b\""}}), R"( q="say \"a=b\"")");
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

// Standard error of this process into a file, for as long as it lives.
class StderrInFile {
 public:
  StderrInFile() : before_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~StderrInFile() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  std::vector<std::string> Lines() const {
    std::string text(1 << 16, '\0');
    const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(file, text.data(), text.size());
    close(file);
    text.resize(size < 0 ? 0 : size);
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

 private:
  const std::string path_ = testing::TempDir() + "/stderr";
  const int before_;
};

TEST(LogTest, LinesBelowTheLevelAreDroppedAndTheLevelMayChange) {
  const StderrInFile file;
  {
    Log log(LogLevel::kWarn, LogFormat::kJson);
    const LogSink sink = log.Sink();
    sink(LogLevel::kInfo, "one");
    sink(LogLevel::kWarn, "two");
    log.SetLevel(LogLevel::kDebug);
    sink(LogLevel::kDebug, "three", {{"n", int64_t{3}}});
  }
  std::vector<std::string> messages;
  for (const std::string& line : file.Lines()) {
    const auto object = nlohmann::json::parse(line);
    messages.push_back(object["message"]);
    EXPECT_TRUE(object.contains("time"));
    EXPECT_EQ(object["level"], messages.size() == 1 ? "warning" : "debug");
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"two", "three"}));
}

// A pipe that nobody reads holds up neither the writer nor what comes after.
TEST(LogTest, AReaderThatDoesNotReadHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string said;
  std::thread reader;
  {
    Log log(LogLevel::kInfo, LogFormat::kText);
    // The pipe holds 64 KiB, the log kMostWaiting lines.
    const std::string line(1000, 'x');
    for (int i = 0; i < Log::kMostWaiting + 1000; ++i) log.Info(line);
    // All came here, though none was read: now the log may end.
    reader = std::thread([&] {
      char buffer[4096];
      for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
        said.append(buffer, got);
    });
  }
  dup2(before, STDERR_FILENO);
  close(before);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_TRUE(absl::StrContains(said, " lines of this log were dropped")) << said.size();
}

}  // namespace
}  // namespace tidepool::service
