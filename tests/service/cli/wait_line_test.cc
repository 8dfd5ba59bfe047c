#include "service/cli/wait_line.h"

#include <pty.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

// The two ends of a pseudo-terminal.
struct Terminal {
  Terminal() { EXPECT_EQ(openpty(&ours, &theirs, nullptr, nullptr, nullptr), 0); }
  ~Terminal() {
    close(ours);
    if (theirs >= 0) close(theirs);
  }

  // Returns what was written, up to and including `end`. If `theirs` is closed, returns everything.
  std::string ReadTo(const std::string& end) {
    std::string text;
    char c = 0;
    while (read(ours, &c, 1) == 1) {
      text.push_back(c);
      if (!end.empty() && text.ends_with(end)) break;
    }
    return text;
  }

  int ours = -1;
  int theirs = -1;
};

TEST(WaitLineTest, CountsOnATerminalAndGoesAway) {
  Terminal terminal;
  Console console(terminal.theirs, terminal.theirs);
  WaitLine line(&console);
  line.Start();
  EXPECT_EQ(terminal.ReadTo(" s"), "\r\033[Kcomputing the prompt: 3 s");
  line.Stop();
  line.Stop();
  console.Print("word");
  EXPECT_TRUE(terminal.ReadTo("word").ends_with("\r\033[Kword"));
}

TEST(WaitLineTest, AShortWaitLeavesNoTrace) {
  Terminal terminal;
  Console console(terminal.theirs, terminal.theirs);
  {
    WaitLine line(&console);
    line.Start();
  }
  console.Print("word");
  EXPECT_EQ(terminal.ReadTo("word"), "word");
}

TEST(WaitLineTest, SaysNothingElsewhere) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Console console(ends[1], ends[1]);
  WaitLine line(&console);
  line.Start();
  usleep(3'500'000);
  line.Stop();
  close(ends[1]);
  char c = 0;
  EXPECT_EQ(read(ends[0], &c, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace tidepool::service
