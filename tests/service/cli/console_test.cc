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

}  // namespace
}  // namespace tidepool::service
