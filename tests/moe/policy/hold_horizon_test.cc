#include "moe/policy/hold_horizon.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int kForwards = 64;
constexpr float kPrice = 0.15f;

// The hazards of one expert. The last one is repeated.
HoldHorizon Optimize(const std::vector<float>& hazards) {
  HoldHorizon hold;
  hold.Start(1, kPrice);
  for (int forward = 0; forward < kForwards; ++forward) {
    const float hazard = hazards[std::min<size_t>(forward, hazards.size() - 1)];
    if (!hold.Add(std::vector<float>(4, hazard))) break;
  }
  return hold;
}

TEST(HoldHorizonTest, StopsWhenHazardsFallBelowThePrice) {
  HoldHorizon hold = Optimize({0.5f, 0.14f, 0.1f});
  EXPECT_FLOAT_EQ(hold.chance()[0], 0.5f);
  EXPECT_FLOAT_EQ(hold.forwards()[0], 0);
  hold = Optimize({0.5f, 0.16f, 0.1f});
  EXPECT_FLOAT_EQ(hold.chance()[0], 1 - 0.5f * 0.84f);
  EXPECT_FLOAT_EQ(hold.forwards()[0], 0.5f);
}

TEST(HoldHorizonTest, HoldsUntilHazardsRise) {
  const HoldHorizon hold = Optimize({0.1f, 0.1f, 0.9f, 0.9f, 0.1f});
  // The third forward probably uses the expert. Holding for the fourth pays off, too.
  const float unused = 0.9f * 0.9f * 0.1f * 0.1f;
  EXPECT_FLOAT_EQ(hold.chance()[0], 1 - unused);
  EXPECT_FLOAT_EQ(hold.forwards()[0], 0.9f + 0.81f + 0.081f);
}

TEST(HoldHorizonTest, HoldsForACertainUseOnlyIfItPaysOff) {
  std::vector<float> hazards(kForwards, 0.0f);
  hazards[6] = 1;
  EXPECT_FLOAT_EQ(Optimize(hazards).chance()[0], 1);
  EXPECT_FLOAT_EQ(Optimize(hazards).forwards()[0], 6);  // costs 0.9 of a use
  hazards[6] = 0;
  hazards[7] = 1;
  EXPECT_FLOAT_EQ(Optimize(hazards).chance()[0], 0);  // would cost 1.05
  EXPECT_FLOAT_EQ(Optimize(hazards).forwards()[0], 0);
}

// Compares the result with all numbers of forwards.
TEST(HoldHorizonTest, NoOtherNumberOfForwardsGainsMore) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < 200; ++round) {
    constexpr int kExperts = 7;
    std::vector<std::vector<float>> hazards(kForwards, std::vector<float>(8));  // [forwards, 8]
    for (int e = 0; e < kExperts; ++e) {
      const double usual = uniform(random) * uniform(random);
      for (int forward = 0; forward < kForwards; ++forward) {
        hazards[forward][e] = static_cast<float>(uniform(random) < 0.1 ? uniform(random) : usual);
      }
    }
    const double price = uniform(random) * uniform(random) * 0.5;
    HoldHorizon hold;
    hold.Start(kExperts, static_cast<float>(price));
    for (int forward = 0; forward < kForwards && hold.Add(hazards[forward]); ++forward) {
    }
    for (int e = 0; e < kExperts; ++e) {
      double best = -1;
      double unused = 1;
      double waited = 0;
      for (int forward = 0; forward < kForwards; ++forward) {
        if (forward > 0) waited += unused;
        unused *= 1 - hazards[forward][e];
        best = std::max(best, 1 - unused - price * waited);
      }
      EXPECT_NEAR(hold.chance()[e] - price * hold.forwards()[e], best, 1e-5) << round << " " << e;
    }
  }
}

}  // namespace
}  // namespace tidepool::moe
