#include "kernels/base/check.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "gtest/gtest.h"

namespace tidepool::base {
namespace {

TEST(CheckDeathTest, SaysWhereAndWhy) {
  EXPECT_DEATH(CHECK(1 > 2) << "never", R"(check_test\.cc:[0-9]+: CHECK\(1 > 2\) failed\. never)");
}

void FailWithFullStderr() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const int size = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const std::string page(size, '.');
  if (write(ends[1], page.data(), page.size()) != size) return;
  dup2(ends[1], STDERR_FILENO);
  CHECK(false) << "nobody reads this";
}

TEST(CheckDeathTest, EndsTheProcessEvenIfStderrIsNotRead) {
  EXPECT_EXIT(FailWithFullStderr(), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace tidepool::base
