#include "service/cli/line_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

std::string Note(int64_t count) { return absl::StrCat("[", count, "]\n"); }

// A pipe whose buffer has the size of one page.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends_[1], F_SETPIPE_SZ, kPage), kPage);
  }
  ~Pipe() {
    if (ends_[0] >= 0) close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  void Fill() const {
    const std::string page(kPage, '.');
    EXPECT_EQ(write(ends_[1], page.data(), page.size()), kPage);
  }
  int in() const { return ends_[1]; }
  void CloseIn() { close(std::exchange(ends_[1], -1)); }
  void CloseOut() { close(std::exchange(ends_[0], -1)); }
  // Reads until all writers have closed the pipe.
  std::string ReadAll() const {
    std::string text;
    char buffer[kPage];
    for (ssize_t got; (got = read(ends_[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, got);
    return text;
  }

 private:
  static constexpr int kPage = 4096;
  int ends_[2];
};

TEST(LineWriterTest, WritesInOrderAndLongLinesWhole) {
  Pipe pipe;
  const std::string line = std::string(100000, 'x') + "\n";
  std::string said;
  std::thread reader([&] { said = pipe.ReadAll(); });
  {
    LineWriter writer(pipe.in(), {.flush_timeout = absl::Minutes(1)});
    writer.Write("one\n");
    writer.Write(line);
    writer.Write("two\n");
  }
  pipe.CloseIn();
  reader.join();
  EXPECT_EQ(said, absl::StrCat("one\n", line, "two\n"));
}

TEST(LineWriterTest, WritersDoNotWaitForAFullPipe) {
  Pipe pipe;
  pipe.Fill();
  {
    LineWriter writer(pipe.in(), {.flush_timeout = absl::ZeroDuration()});
    writer.Write("one\n");
    EXPECT_FALSE(writer.Flush(absl::ZeroDuration()));
  }
  pipe.CloseIn();
  EXPECT_EQ(pipe.ReadAll(), std::string(4096, '.'));
}

TEST(LineWriterTest, TheOldestLinesAreReplacedByANote) {
  Pipe pipe;
  pipe.Fill();
  std::string said;
  std::thread reader;
  {
    LineWriter writer(pipe.in(),
                      {.max_lines = 2, .flush_timeout = absl::Minutes(1), .dropped_note = Note});
    for (int i = 0; i < 9; ++i) writer.Write(absl::StrCat(i, "\n"));
    // The thread may or may not have taken the first line already.
    EXPECT_GE(writer.dropped(), 6);
    EXPECT_LE(writer.dropped(), 7);
    reader = std::thread([&] { said = pipe.ReadAll(); });
  }
  pipe.CloseIn();
  reader.join();
  ASSERT_EQ(said.substr(0, 4096), std::string(4096, '.'));
  said.erase(0, 4096);
  EXPECT_TRUE(said == "0\n[6]\n7\n8\n" || said == "[7]\n7\n8\n") << said;
}

TEST(LineWriterTest, BytesAreBoundedToo) {
  Pipe pipe;
  pipe.Fill();
  {
    LineWriter writer(
        pipe.in(),
        {.max_bytes = 10, .flush_timeout = absl::ZeroDuration(), .dropped_note = nullptr});
    for (int i = 0; i < 5; ++i) writer.Write("eight...\n");
    EXPECT_GE(writer.dropped(), 3);
  }
}

TEST(LineWriterTest, AFullDiskIsCountedAndReportedLater) {
  const std::string path = absl::StrCat(testing::TempDir(), "/line_writer_test");
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  const int fd = dup(full);
  {
    LineWriter writer(fd, {.dropped_note = Note});
    writer.Write("lost\n");
    EXPECT_TRUE(writer.Flush(absl::Minutes(1)));
    EXPECT_EQ(writer.dropped(), 1);
    EXPECT_EQ(writer.last_error(), ENOSPC);
    ASSERT_EQ(dup2(file, fd), fd);
    writer.Write("kept\n");
  }
  std::string said(64, '\0');
  said.resize(pread(file, said.data(), said.size(), 0));
  EXPECT_EQ(said, "[1]\nkept\n");
  for (const int one : {full, file, fd}) close(one);
}

TEST(LineWriterTest, AClosedPipeDoesNotEndTheWriter) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.CloseOut();
  LineWriter writer(pipe.in(), {});
  writer.Write("one\n");
  writer.Write("two\n");
  EXPECT_TRUE(writer.Flush(absl::Minutes(1)));
  EXPECT_EQ(writer.dropped(), 2);
  EXPECT_EQ(writer.last_error(), EPIPE);
}

TEST(LineWriterTest, SomebodyElsesNonBlockingFileLosesNothing) {
  Pipe pipe;
  ASSERT_EQ(fcntl(pipe.in(), F_SETFL, O_NONBLOCK), 0);
  const std::string line = std::string(50000, 'x') + "\n";
  std::string said;
  std::thread reader([&] { said = pipe.ReadAll(); });
  {
    LineWriter writer(pipe.in(), {.flush_timeout = absl::Minutes(1)});
    writer.Write(line);
  }
  pipe.CloseIn();
  reader.join();
  EXPECT_EQ(said, line);
}

TEST(LineWriterTest, AnEndInAHurryWaitsForNoReader) {
  Pipe pipe;
  LineWriter writer(pipe.in(), {.flush_timeout = absl::InfiniteDuration()});
  writer.Write(std::string(size_t{1} << 20, 'x') + "\n");
  EXPECT_FALSE(writer.Flush(absl::ZeroDuration()));
  writer.Hurry();
}

TEST(LineWriterTest, LeavesTheCallersSignalsAsTheyWere) {
  Pipe pipe;
  sigset_t before, now;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  const LineWriter writer(pipe.in(), {});
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), sigismember(&before, SIGUSR1));
}

}  // namespace
}  // namespace tidepool::service
