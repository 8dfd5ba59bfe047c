#include "service/cli/stop_signals.h"

#include <csignal>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

using testing::ExitedWithCode;

constexpr absl::Duration kNever = absl::Hours(1);

void Hang() { absl::Notification().WaitForNotification(); }

TEST(StopSignalsTest, TheFirstBeginsTheDrainAndTheSecondCutsItShort) {
  StopSignals signals(kNever);
  absl::Notification cut;
  signals.ServerIs([&] { cut.Notify(); });
  signals.Reread();
  EXPECT_EQ(signals.Next(), StopSignals::Request::kReread);
  signals.Stop(SIGTERM);
  EXPECT_EQ(signals.Next(), StopSignals::Request::kStop);
  EXPECT_FALSE(cut.HasBeenNotified());
  signals.Stop(SIGTERM);
  cut.WaitForNotification();
  signals.ServerLeaves();
}

TEST(StopSignalsTest, ASecondSignalEndsADrainThatAClientRequested) {
  StopSignals signals(kNever);
  absl::Notification cut;
  signals.ServerIs([&] { cut.Notify(); });
  signals.OnDrain();
  EXPECT_EQ(signals.Next(), StopSignals::Request::kStop);
  signals.Stop(SIGINT);
  EXPECT_FALSE(cut.HasBeenNotified());
  signals.Stop(SIGINT);
  cut.WaitForNotification();
  signals.ServerLeaves();
}

class StopSignalsDeathTest : public testing::Test {
 protected:
  StopSignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalsDeathTest, ASignalBeforeThereIsAServerEndsTheProcessWell) {
  EXPECT_EXIT(StopSignals(kNever).Stop(SIGTERM), ExitedWithCode(0), "");
}

TEST_F(StopSignalsDeathTest, AServerThatHangsEndsWithTheThirdSignal) {
  const auto thrice = [] {
    StopSignals signals(kNever);
    signals.ServerIs(Hang);
    for (int i = 0; i < 3; ++i) signals.Stop(SIGTERM);
  };
  EXPECT_EXIT(thrice(), ExitedWithCode(128 + SIGTERM), "");
}

TEST_F(StopSignalsDeathTest, AServerThatHangsEndsSoonAfterTheSecondSignal) {
  const auto twice = [] {
    StopSignals signals(absl::Milliseconds(1));
    signals.ServerIs(Hang);
    for (int i = 0; i < 2; ++i) signals.Stop(SIGINT);
    Hang();
  };
  EXPECT_EXIT(twice(), ExitedWithCode(128 + SIGINT), "");
}

TEST_F(StopSignalsDeathTest, TheSecondSignalEndsAProcessThatHangsAfterTheServer) {
  const auto late = [] {
    StopSignals signals(kNever);
    signals.ServerIs(Hang);
    signals.Stop(SIGTERM);
    signals.ServerLeaves();
    signals.Stop(SIGTERM);
  };
  EXPECT_EXIT(late(), ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace tidepool::service
