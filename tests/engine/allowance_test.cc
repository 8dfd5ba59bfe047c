#include "engine/allowance.h"

#include <gtest/gtest.h>

namespace tidepool::engine {
namespace {

TEST(AllowanceTest, IsUsedUpAndGrowsWithTime) {
  constexpr absl::Duration kMax = absl::Milliseconds(3);
  absl::Duration now = absl::Seconds(100);
  Allowance allowance(now, kMax, 0.125);
  EXPECT_EQ(allowance.Left(now), kMax);
  allowance.Use(kMax / 2);
  EXPECT_EQ(allowance.Left(now), kMax / 2);
  allowance.Use(2 * kMax);
  EXPECT_EQ(allowance.Left(now), absl::ZeroDuration());
  now += absl::Milliseconds(8);
  EXPECT_EQ(allowance.Left(now), absl::Milliseconds(1));
  now += absl::Seconds(10);
  EXPECT_EQ(allowance.Left(now), kMax);
}

}  // namespace
}  // namespace tidepool::engine
