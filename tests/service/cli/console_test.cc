#include "service/cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, got);
  return text;
}

TEST(ConsoleTest, ResultsAndNotesGoApart) {
  int out[2];
  int err[2];
  ASSERT_EQ(pipe(out), 0);
  ASSERT_EQ(pipe(err), 0);
  Console console(out[1], err[1]);
  console.Print("a");
  console.PrintJson({{"key", "bad \xff byte"}});
  console.Note("note\n");
  EXPECT_TRUE(console.out_status().ok());
  EXPECT_FALSE(console.out_is_terminal());
  close(out[1]);
  close(err[1]);
  EXPECT_EQ(ReadAll(out[0]), "a{\"key\":\"bad \xEF\xBF\xBD byte\"}\n");
  EXPECT_EQ(ReadAll(err[0]), "note\n");
  close(out[0]);
  close(err[0]);
}

TEST(ConsoleTest, AResultIsJsonOrText) {
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  Console console(out[1], out[1]);
  const auto text = [](const Json& json) { return "n is " + json["n"].dump() + "\n"; };
  EXPECT_TRUE(console.PrintResult(OutputFormat::kJson, {{"n", 3}}, text).ok());
  EXPECT_TRUE(console.PrintResult(OutputFormat::kText, {{"n", 3}}, text).ok());
  close(out[1]);
  EXPECT_EQ(ReadAll(out[0]), "{\"n\":3}\nn is 3\n");
  close(out[0]);
}

TEST(ConsoleTest, RemembersThatStdoutFailed) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Console console(full, full);
  console.Print("");
  EXPECT_TRUE(console.out_status().ok());
  console.Print("x");
  EXPECT_EQ(console.out_status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(console.PrintResult(OutputFormat::kJson, {}, [](const Json&) { return ""; }).ok());
  close(full);
}

// The characters are NEL, CSI, a line separator, a direction override, a direction mark and DEL.
constexpr char kActing[] =
    "a\xC2\x85"
    "b\xC2\x9B"
    "c\xE2\x80\xA8"
    "d\xE2\x80\xAE"
    "e\xD8\x9C"
    "f\x7F";

TEST(OneLineTest, NothingActsOnATerminal) {
  EXPECT_EQ(OneLine(kActing), R"(a\u0085b\u009bc\u2028d\u202ee\u061cf )");
  EXPECT_EQ(OneLine("\x1B[2J\n\t"), " [2J  ");
  // A single byte of C1, and the first half of a character.
  EXPECT_EQ(OneLine("a\x9B[2J\xE2\x80"), "a\xEF\xBF\xBD[2J\xEF\xBF\xBD");
  // Ordinary text is not changed.
  EXPECT_EQ(OneLine("na\xC3\xAFve \xE2\x80\x9Cq\xE2\x80\x9D \xE6\xB0\xB4 \xF0\x9F\x98\x80"),
            "na\xC3\xAFve \xE2\x80\x9Cq\xE2\x80\x9D \xE6\xB0\xB4 \xF0\x9F\x98\x80");
}

TEST(ToLineTest, NothingActsOnATerminalAndAReaderGetsTheSame) {
  const std::string line = ToLine(Json{{"text", kActing}});
  EXPECT_EQ(line, R"({"text":"a\u0085b\u009bc\u2028d\u202ee\u061cf\u007f"})");
  EXPECT_EQ(Json::parse(line)["text"], kActing);
}

TEST(ConsoleTest, AServerIgnoresErrorsOfStdout) {
  int full[2];
  ASSERT_EQ(pipe2(full, O_CLOEXEC), 0);
  const int page = fcntl(full[1], F_SETPIPE_SZ, 4096);
  const std::string dots(page, '.');
  ASSERT_EQ(write(full[1], dots.data(), dots.size()), page);
  const int broken = open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    Console console(full[1], full[1]);
    console.NeverWait({.flush_timeout = absl::ZeroDuration()});
    console.Print("endpoints\n");
    console.Note("note\n");
    EXPECT_TRUE(console.out_status().ok());
    Console other(broken, full[1]);
    other.NeverWait({.flush_timeout = absl::ZeroDuration()});
    other.Print("endpoints\n");
    EXPECT_EQ(other.out_status().message(), "cannot write to stdout: No space left on device");
  }
  for (const int one : {full[0], full[1], broken}) close(one);
}

}  // namespace
}  // namespace tidepool::service
