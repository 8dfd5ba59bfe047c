#include "kernels/base/background_task.h"

#include <functional>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::base {
namespace {

class BackgroundTaskTest : public testing::Test {
 protected:
  // Works for `time`, in steps of 10 microseconds. Returns how often the task gave up the CPU.
  int Work(absl::Duration time) {
    const int before = yields_;
    for (absl::Duration done; done < time; done += kStep) {
      clock_.Advance(kStep);
      LetOthersRun();
    }
    return yields_ - before;
  }
  void Begin() { task_.emplace(&clock_, yield_); }
  void End() { task_.reset(); }

  static constexpr absl::Duration kStep = absl::Microseconds(10);
  static constexpr absl::Duration kTurn = BackgroundTask::kTurn;
  static constexpr absl::Duration kUndisturbed = BackgroundTask::kUndisturbed;
  fakes::ManualClock clock_;

 private:
  int yields_ = 0;
  const std::function<void()> yield_ = [this] {
    ++yields_;
    clock_.Advance(absl::Milliseconds(3));  // others run
  };
  std::optional<BackgroundTask> task_;
};

TEST_F(BackgroundTaskTest, AShortTaskKeepsTheCpu) {
  for (int i = 0; i < 5; ++i) {
    Begin();
    EXPECT_EQ(Work(kUndisturbed - kStep), 0);
    End();
  }
}

TEST_F(BackgroundTaskTest, ALongTaskGivesUpTheCpuAfterEachTurn) {
  Begin();
  EXPECT_EQ(Work(kUndisturbed), 1);
  // The time of the others does not count.
  EXPECT_EQ(Work(kTurn - kStep), 0);
  EXPECT_FALSE(TurnIsOver());
  clock_.Advance(kStep);
  EXPECT_TRUE(TurnIsOver());
  EXPECT_EQ(Work(kStep), 1);
  EXPECT_FALSE(TurnIsOver());
  EXPECT_EQ(Work(7 * kTurn), 7);
  End();
  Begin();
  EXPECT_EQ(Work(kUndisturbed - kStep), 0);
}

TEST_F(BackgroundTaskTest, NothingHappensWithoutATask) {
  EXPECT_EQ(Work(2 * kUndisturbed), 0);
  Begin();
  EXPECT_EQ(Work(kUndisturbed), 1);
  std::thread other([this] { EXPECT_EQ(Work(2 * kUndisturbed), 0); });
  other.join();
  End();
  EXPECT_EQ(Work(2 * kUndisturbed), 0);
}

}  // namespace
}  // namespace tidepool::base
