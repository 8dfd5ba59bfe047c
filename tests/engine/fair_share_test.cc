#include "engine/fair_share.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tidepool::engine {
namespace {

TEST(FairShareTest, TimeAwayIsNoCredit) {
  FairShare share;
  share.BeginWaiting("busy");
  share.Charge("busy", 1000);
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 1000);
  share.Charge("late", 10);
  share.EndWaiting("late");
  share.Charge("late", 500);  // what it still had running
  share.Charge("busy", 100);
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 1510) << "and time away pays nothing back";
}

TEST(FairShareTest, WhoComesToAnEmptyQueueStartsWhereTheLastOneLeft) {
  FairShare share;
  share.BeginWaiting("a");
  share.Charge("a", 70);
  share.EndWaiting("a");
  share.BeginWaiting("b");
  EXPECT_EQ(share.served("b"), 70);
  share.BeginWaiting("b");
  share.EndWaiting("b");
  share.Charge("b", 5);
  EXPECT_EQ(share.served("b"), 75) << "one of its two still waits";
}

TEST(FairShareTest, ForgetsWhoWasServedLeast) {
  FairShare share;
  share.BeginWaiting("always");
  for (size_t i = 0; i <= FairShare::kMostIdle; ++i) {
    const std::string name = absl::StrCat("p", i);
    share.BeginWaiting(name);
    share.Charge(name, static_cast<int64_t>(i));
    share.EndWaiting(name);
  }
  share.Charge("p0", 1000);  // forgotten: nobody is charged
  share.BeginWaiting("p0");
  EXPECT_EQ(share.served("p0"), 0);
  share.BeginWaiting("p7");
  EXPECT_EQ(share.served("p7"), 7);
}

}  // namespace
}  // namespace tidepool::engine
