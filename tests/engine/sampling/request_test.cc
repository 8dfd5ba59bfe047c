#include "engine/sampling/request.h"

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

TEST(LimitMaxTokensTest, TakesTheSmallerOfTheRequestAndTheRoom) {
  EXPECT_EQ(LimitMaxTokens(10, 100), 10);
  EXPECT_EQ(LimitMaxTokens(100, 10), 10);
  EXPECT_EQ(LimitMaxTokens(0, 10), 0);
}

TEST(LimitMaxTokensTest, TakesAllTheRoomIfNothingWasAskedFor) {
  EXPECT_EQ(LimitMaxTokens(std::nullopt, 10), 10);
}

// StoppingParams::Validate rejects them, so they must not become valid here.
TEST(LimitMaxTokensTest, KeepsNegativeNumbers) { EXPECT_EQ(LimitMaxTokens(-1, 10), -1); }

}  // namespace
}  // namespace tidepool::engine
