#include "moe/policy/outlook_walk.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int kStride = 4;
constexpr float kPrice = 0.15f;

// Runs forwards 0, 1, 2-3, 4-7 with these chances of every expert.
void Walk(const std::vector<float>& chances, const std::vector<int32_t>& due,
          const std::vector<float>& due_chances, OutlookWalk* walk) {
  walk->Begin(kStride, kPrice, due, due_chances);
  const int begins[] = {0, 1, 2, 4, 8};
  for (int interval = 0; interval < 4; ++interval) {
    walk->Advance(begins[interval], begins[interval + 1],
                  std::vector<float>(kStride, chances[interval]));
  }
}

TEST(OutlookWalkTest, GivesUpWhereChancesFallBelowThePrice) {
  OutlookWalk walk(kStride);
  Walk({0.5f, 0.14f, 0.1f, 0.1f}, {-1, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  EXPECT_FLOAT_EQ(walk.chance()[2], 0.5f);
  EXPECT_FLOAT_EQ(walk.forwards()[2], 0);
  Walk({0.5f, 0.16f, 0.1f, 0.1f}, {-1, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  EXPECT_FLOAT_EQ(walk.chance()[2], 1 - 0.5f * 0.84f);
  EXPECT_FLOAT_EQ(walk.forwards()[2], 0.5f);
}

TEST(OutlookWalkTest, WaitsForChancesThatRise) {
  OutlookWalk walk(kStride);
  Walk({0.1f, 0.1f, 0.9f, 0.1f}, {-1, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  // The third forward is likely, and the fourth is for those that it has not used.
  const float unused = 0.9f * 0.9f * 0.1f * 0.1f;
  EXPECT_FLOAT_EQ(walk.chance()[0], 1 - unused);
  EXPECT_FLOAT_EQ(walk.forwards()[0], 0.9f + 0.81f + 0.081f);
}

TEST(OutlookWalkTest, ADueForwardHasItsOwnChance) {
  OutlookWalk walk(kStride);
  // Expert 0 is due where an interval begins, which says nothing of the rest of the interval.
  Walk({0, 0, 0, 1}, {4, 6, -1, 3}, {1, 0.5f, 0, 1}, &walk);
  EXPECT_FLOAT_EQ(walk.chance()[0], 1);
  EXPECT_FLOAT_EQ(walk.forwards()[0], 4);
  EXPECT_FLOAT_EQ(walk.chance()[1], 1);  // used in forward 4, before it is due
  EXPECT_FLOAT_EQ(walk.forwards()[1], 4);
  EXPECT_FLOAT_EQ(walk.chance()[3], 1);
  EXPECT_FLOAT_EQ(walk.forwards()[3], 3);
  Walk({0, 0, 0, 0.5f}, {4, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  EXPECT_FLOAT_EQ(walk.chance()[0], 0);  // the interval's chance was that of the due forward
  EXPECT_GT(walk.chance()[1], 0.9f);
}

TEST(OutlookWalkTest, BeginsAfresh) {
  OutlookWalk walk(kStride);
  Walk({1, 1, 1, 1}, {-1, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  Walk({0.25f, 0, 0, 0}, {-1, -1, -1, -1}, {0, 0, 0, 0}, &walk);
  EXPECT_FLOAT_EQ(walk.chance()[1], 0.25f);
  EXPECT_FLOAT_EQ(walk.forwards()[1], 0);
}

}  // namespace
}  // namespace tidepool::moe
