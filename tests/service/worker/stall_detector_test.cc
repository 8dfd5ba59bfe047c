#include "service/worker/stall_detector.h"

#include <gtest/gtest.h>

namespace tidepool::service {
namespace {

class StallDetectorTest : public testing::Test {
 protected:
  bool Stuck(int seconds, bool work_pending, uint64_t progress) {
    return !detector_
                .Look({.at = absl::Seconds(seconds),
                       .work_pending = work_pending,
                       .progress = progress})
                .ok();
  }

  StallDetector detector_{absl::Seconds(60)};
};

TEST_F(StallDetectorTest, StuckWhileWorkIsPendingAndNothingMoves) {
  EXPECT_FALSE(Stuck(1000, true, 7));
  EXPECT_FALSE(Stuck(1059, true, 7));
  EXPECT_TRUE(Stuck(1060, true, 7));
  EXPECT_TRUE(Stuck(2000, true, 7));
  EXPECT_FALSE(Stuck(2001, true, 8)) << "it moves again";
  EXPECT_FALSE(Stuck(2060, true, 8));
  EXPECT_TRUE(Stuck(2061, true, 8));
}

TEST_F(StallDetectorTest, WithoutWorkItIsNeverStuck) {
  EXPECT_FALSE(Stuck(0, false, 7));
  EXPECT_FALSE(Stuck(10000, false, 7));
  // The time counts from the moment when work became pending.
  EXPECT_FALSE(Stuck(10001, true, 7));
  EXPECT_FALSE(Stuck(10060, true, 7));
  EXPECT_TRUE(Stuck(10061, true, 7));
  EXPECT_FALSE(Stuck(10062, false, 7));
}

TEST_F(StallDetectorTest, SlowIsNotStuck) {
  for (int step = 0; step < 100; ++step) EXPECT_FALSE(Stuck(59 * step, true, step));
}

TEST_F(StallDetectorTest, SaysForHowLong) {
  StallDetector detector(absl::Seconds(1));
  ASSERT_TRUE(detector.Look({.at = absl::ZeroDuration(), .work_pending = true}).ok());
  EXPECT_EQ(detector.Look({.at = absl::Seconds(3), .work_pending = true}),
            absl::UnavailableError(
                "the engine is stuck: work is pending, but there was no progress for 1s"));
}

}  // namespace
}  // namespace tidepool::service
