#include "service/cli/signals.h"

#include <unistd.h>

#include <future>

#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

TEST(SignalWatcherTest, ReportsEachSignalOnItsOwnThread) {
  std::promise<int> first;
  std::promise<int> second;
  std::promise<std::thread::id> thread;
  int count = 0;
  const SignalWatcher watcher({SIGUSR1, SIGUSR2}, [&](int signal) {
    if (count == 0) thread.set_value(std::this_thread::get_id());
    (count++ == 0 ? first : second).set_value(signal);
  });
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  EXPECT_EQ(first.get_future().get(), SIGUSR1);
  ASSERT_EQ(kill(getpid(), SIGUSR2), 0);
  EXPECT_EQ(second.get_future().get(), SIGUSR2);
  EXPECT_NE(thread.get_future().get(), std::this_thread::get_id());
}

TEST(SignalWatcherTest, EndsWithoutASignal) {
  const SignalWatcher watcher({SIGUSR1}, [](int) { FAIL() << "nobody sent one"; });
}

}  // namespace
}  // namespace tidepool::service
