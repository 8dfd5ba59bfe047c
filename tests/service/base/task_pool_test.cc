#include "service/base/task_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {
namespace {

// A pool with one thread. The thread waits until the test has posted all tasks. `ran_` has the
// tasks in the order in which they ran.
class TaskPoolTest : public testing::Test {
 protected:
  TaskPoolTest() {
    std::promise<void> busy;
    pool_->Post("the test", [this, &busy] {
      busy.set_value();
      gate_.get_future().wait();
    });
    busy.get_future().wait();
  }

  void Post(const std::string& line, const std::string& name) {
    pool_->Post(line, [this, name] {
      base::MutexLock lock(&mutex_);
      order_.push_back(name);
    });
  }

  std::vector<std::string> RunAll() {
    gate_.set_value();
    pool_.reset();  // runs all posted tasks
    base::MutexLock lock(&mutex_);
    return std::exchange(order_, {});
  }

  std::promise<void> gate_;
  base::Mutex mutex_;
  std::vector<std::string> order_ TIDEPOOL_GUARDED_BY(mutex_);
  std::optional<TaskPool> pool_{1};
};

TEST_F(TaskPoolTest, AThousandTasksDelayAnotherQueueByOneTask) {
  for (int i = 0; i < 1000; ++i) Post("greedy", "greedy");
  Post("other", "other");
  const std::vector<std::string> order = RunAll();
  ASSERT_EQ(order.size(), 1001);
  EXPECT_EQ(std::find(order.begin(), order.end(), "other") - order.begin(), 1);
}

TEST_F(TaskPoolTest, LinesTakeTurnsAndEachKeepsItsOrder) {
  for (const std::string line : {"a", "b", "c"}) {
    const int tasks = line == "a" ? 4 : line == "b" ? 2 : 1;
    for (int i = 0; i < tasks; ++i) Post(line, absl::StrCat(line, i));
  }
  EXPECT_EQ(RunAll(), (std::vector<std::string>{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}));
}

TEST_F(TaskPoolTest, AnEmptyLineCanBeUsedAgain) {
  pool_->Post("b", [this] { Post("b", "b1"); });
  for (int i = 0; i < 3; ++i) Post("a", absl::StrCat("a", i));
  EXPECT_EQ(RunAll(), (std::vector<std::string>{"a0", "b1", "a1", "a2"}));
}

}  // namespace
}  // namespace tidepool::service
