#include "service/base/active_calls.h"

#include <gtest/gtest.h>

#include <thread>

namespace tidepool::service {
namespace {

TEST(ActiveCallsTest, DrainReturnsWhetherAllCallsHaveEnded) {
  ActiveCalls calls;
  ASSERT_TRUE(calls.Enter().ok());
  EXPECT_FALSE(calls.Drain(absl::ZeroDuration()));
  calls.Leave();
  EXPECT_TRUE(calls.Drain(absl::ZeroDuration()));
}

TEST(ActiveCallsTest, AwaitNoneWaitsAfterADrainHasTimedOut) {
  ActiveCalls calls;
  ASSERT_TRUE(calls.Enter().ok());
  EXPECT_FALSE(calls.Drain(absl::ZeroDuration()));
  EXPECT_FALSE(calls.AwaitNone(absl::ZeroDuration()));
  std::thread leaving([&] { calls.Leave(); });
  EXPECT_TRUE(calls.AwaitNone(absl::Minutes(10)));
  leaving.join();
}

TEST(ActiveCallsTest, HurryEndsAWaitThatRunsAndThoseThatFollow) {
  ActiveCalls calls;
  ASSERT_TRUE(calls.Enter().ok());
  std::thread waiting([&] { EXPECT_FALSE(calls.AwaitNone(absl::InfiniteDuration())); });
  calls.Hurry(absl::ZeroDuration());
  waiting.join();
  EXPECT_FALSE(calls.AwaitNone(absl::InfiniteDuration()));
  calls.Leave();
  EXPECT_TRUE(calls.AwaitNone(absl::InfiniteDuration()));
}

TEST(ActiveCallsTest, CallsEnterWhileItLingers) {
  ActiveCalls calls;
  std::thread lingering([&] { calls.Linger(absl::InfiniteDuration()); });
  EXPECT_TRUE(calls.Enter().ok());
  calls.Leave();
  // Another Drain call shortens the running one.
  calls.Drain(absl::ZeroDuration());
  lingering.join();
  calls.Close();
  EXPECT_EQ(calls.Enter().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tidepool::service
