#include "moe/policy/hold_horizon.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int kForwards = ChanceCurves::kForwards;
constexpr float kPrice = 0.15f;

// Of one expert: these chances, and the last one for all forwards behind them.
void SetCurve(int expert, const std::vector<float>& chances, ChanceCurves* curves) {
  for (int forward = 0; forward < kForwards; ++forward) {
    const size_t i = std::min<size_t>(forward, chances.size() - 1);
    curves->Set(forward, forward + 1, {expert}, {chances[i]});
  }
}

HoldHorizon WalkOf(const std::vector<float>& chances) {
  ChanceCurves curves(4);
  SetCurve(2, chances, &curves);
  HoldHorizon walk(4);
  walk.Go(curves, 4, kPrice);
  return walk;
}

TEST(HoldHorizonTest, GivesUpWhereChancesFallBelowThePrice) {
  HoldHorizon walk = WalkOf({0.5f, 0.14f, 0.1f});
  EXPECT_FLOAT_EQ(walk.chance()[2], 0.5f);
  EXPECT_FLOAT_EQ(walk.forwards()[2], 0);
  walk = WalkOf({0.5f, 0.16f, 0.1f});
  EXPECT_FLOAT_EQ(walk.chance()[2], 1 - 0.5f * 0.84f);
  EXPECT_FLOAT_EQ(walk.forwards()[2], 0.5f);
}

TEST(HoldHorizonTest, WaitsForChancesThatRise) {
  const HoldHorizon walk = WalkOf({0.1f, 0.1f, 0.9f, 0.9f, 0.1f});
  // The third forward is likely, and the fourth is for those that it has not used.
  const float unused = 0.9f * 0.9f * 0.1f * 0.1f;
  EXPECT_FLOAT_EQ(walk.chance()[2], 1 - unused);
  EXPECT_FLOAT_EQ(walk.forwards()[2], 0.9f + 0.81f + 0.081f);
}

TEST(HoldHorizonTest, WaitsForOneCertainForwardAsLongAsItPays) {
  std::vector<float> chances(kForwards, 0.0f);
  chances[6] = 1;
  EXPECT_FLOAT_EQ(WalkOf(chances).chance()[2], 1);
  EXPECT_FLOAT_EQ(WalkOf(chances).forwards()[2], 6);  // 0.9 of a use
  chances[6] = 0;
  chances[7] = 1;
  EXPECT_FLOAT_EQ(WalkOf(chances).chance()[2], 0);  // would cost 1.05
  EXPECT_FLOAT_EQ(WalkOf(chances).forwards()[2], 0);
}

// The best of all numbers of forwards, one by one.
TEST(HoldHorizonTest, NoOtherNumberOfForwardsGainsMore) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < 200; ++round) {
    constexpr int kExperts = 7;
    ChanceCurves curves(12);
    std::vector<std::vector<float>> chances(kExperts, std::vector<float>(kForwards));
    for (int e = 0; e < kExperts; ++e) {
      const double usual = uniform(random) * uniform(random);
      for (float& chance : chances[e]) {
        chance = static_cast<float>(uniform(random) < 0.1 ? uniform(random) : usual);
      }
      SetCurve(e, chances[e], &curves);
    }
    const double price = uniform(random) * uniform(random) * 0.5;
    HoldHorizon walk(12);
    walk.Go(curves, kExperts, static_cast<float>(price));
    for (int e = 0; e < kExperts; ++e) {
      double best = -1;
      double unused = 1;
      double waited = 0;
      for (int forward = 0; forward < kForwards; ++forward) {
        if (forward > 0) waited += unused;
        unused *= 1 - chances[e][forward];
        best = std::max(best, 1 - unused - price * waited);
      }
      EXPECT_NEAR(walk.chance()[e] - price * walk.forwards()[e], best, 1e-5) << round << " " << e;
    }
  }
}

}  // namespace
}  // namespace tidepool::moe
