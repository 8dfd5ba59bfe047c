// Tests the residents of each policy after given routings.
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/policy/placement.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;

constexpr PoolShape kShape{.layers = 2, .experts = 6, .top_k = 2, .slots = 6};

std::unique_ptr<Placement> Make(const PoolShape& shape, const PolicyOptions& options) {
  auto placement = Placement::Create(shape, options);
  CHECK_OK(placement.status());
  return *std::move(placement);
}

// Returns the residents of a layer.
std::vector<int> Of(const Placement& placement, int layer) {
  std::vector<int> experts;
  for (const ExpertRef expert : placement.residents()) {
    if (expert.layer == layer) experts.push_back(expert.expert);
  }
  return experts;
}

void Step(Placement* placement, int64_t step, int layer, std::vector<int32_t> ids) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / placement->shape().top_k;
  placement->Decide({.step = step, .layer = layer, .tokens = tokens, .ids = ids});
}

TEST(TideTest, RefreshesAtItsInterval) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide, .refresh_interval = 2});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Of(*tide, 1), ElementsAre(0, 1, 2));
  Step(tide.get(), 1, 0, {4, 5});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(0, 1, 2));
  // Expert 5 is needed three times, 2 and 4 twice, 3 once. So the targets are 5, 2 and 4.
  Step(tide.get(), 2, 0, {5, 4, 5, 4, 5, 2, 3, 2});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(2, 4, 5));
  EXPECT_THAT(Of(*tide, 1), ElementsAre(0, 1, 2));
  EXPECT_EQ(tide->Total(),
            (PlacementCounters{.hits = 1, .promotions = 2, .pass_throughs = 3, .evictions = 2}));
}

TEST(TideTest, TiesGoToTheLowerIdAndLowIdsLeaveFirst) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide});
  Step(tide.get(), 0, 1, {5, 4});
  EXPECT_THAT(Of(*tide, 1), ElementsAre(2, 4, 5));
  Step(tide.get(), 1, 1, {3, 5, 1, 0});
  EXPECT_THAT(Of(*tide, 1), ElementsAre(0, 1, 3));
}

TEST(TideTest, RefreshSoonRefreshesOnce) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide, .refresh_interval = 100});
  tide->RefreshSoon();
  Step(tide.get(), 7, 0, {4, 5});
  Step(tide.get(), 8, 0, {0, 1});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(2, 4, 5));
}

TEST(TideTest, DoesNotUseTheRemainderOfTheSlots) {
  PoolShape shape = kShape;
  shape.slots = 5;
  auto tide = Make(shape, {.kind = PolicyKind::kTide});
  Step(tide.get(), 0, 0, {4, 5});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(4, 5));
  EXPECT_EQ(tide->residency().free_slots(), 1);
}

TEST(TideTest, PinnedExpertsStay) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide});
  tide->Pin({0, 0});
  tide->Pin({0, 1});
  Step(tide.get(), 0, 0, {4, 5});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(0, 1, 4));
}

TEST(TideTest, ResizesByLayer) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide});
  Step(tide.get(), 0, 0, {4, 5});
  const auto evicted = tide->Resize(3);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_THAT(*evicted,
              ElementsAre(ExpertRef{0, 2}, ExpertRef{0, 4}, ExpertRef{1, 0}, ExpertRef{1, 1}));
  EXPECT_THAT(Of(*tide, 0), ElementsAre(5));
  ASSERT_TRUE(tide->Resize(8).ok());
  Step(tide.get(), 1, 0, {0, 1, 2, 3});
  EXPECT_THAT(Of(*tide, 0), ElementsAre(0, 1, 2, 3));
}

// With three pinned experts, the other layer gets one of four slots. Its share would be two.
TEST(TideTest, PinsOfOneLayerReduceTheSharesOfOthers) {
  auto tide = Make(kShape, {.kind = PolicyKind::kTide});
  for (const int expert : {0, 1, 2}) tide->Pin({0, expert});
  const auto evicted = tide->Resize(4);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_THAT(Of(*tide, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Of(*tide, 1), ElementsAre(2));
  Step(tide.get(), 0, 1, {4, 5});
  EXPECT_THAT(Of(*tide, 1), ElementsAre(4));
}

TEST(LruTest, EvictsTheLeastRecentlyUsedOfAllLayers) {
  PoolShape shape = kShape;
  shape.slots = 4;
  auto lru = Make(shape, {.kind = PolicyKind::kLru});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(0, 1));
  EXPECT_THAT(Of(*lru, 1), ElementsAre(0, 1));
  Step(lru.get(), 0, 0, {0, 2});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(0, 2));
  Step(lru.get(), 0, 1, {3, 1});
  EXPECT_THAT(Of(*lru, 1), ElementsAre(1, 3));
  Step(lru.get(), 1, 0, {4, 5});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(4, 5));
  EXPECT_THAT(Of(*lru, 1), ElementsAre(1, 3));
  Step(lru.get(), 1, 1, {3, 0});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(4, 5));
  EXPECT_THAT(Of(*lru, 1), ElementsAre(0, 3));
}

TEST(LruTest, DoesNotEvictExpertsThatTheRoutingNeeds) {
  PoolShape shape = kShape;
  shape.slots = 3;
  auto lru = Make(shape, {.kind = PolicyKind::kLru});
  Step(lru.get(), 0, 1, {0, 1});
  Step(lru.get(), 1, 0, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(0, 1, 2));
  EXPECT_EQ(lru->Total(),
            (PlacementCounters{.hits = 3, .promotions = 1, .pass_throughs = 4, .evictions = 1}));
}

TEST(LruTest, InitialResidentsStayUntilTheirLayerHasRun) {
  auto lru = Make(kShape, {.kind = PolicyKind::kLru});
  Step(lru.get(), 0, 0, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Of(*lru, 1), ElementsAre(0, 1, 2));
  Step(lru.get(), 0, 1, {2, 3});
  EXPECT_THAT(Of(*lru, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Of(*lru, 1), ElementsAre(1, 2, 3));
}

TEST(StaticTest, KeepsTheMostUsed) {
  PolicyOptions options{.kind = PolicyKind::kStatic,
                        .profile = {9, 0, 0, 8, 0, 0,  //
                                    0, 7, 0, 0, 0, 6}};
  PoolShape shape = kShape;
  shape.slots = 4;
  auto fixed = Make(shape, options);
  EXPECT_THAT(Of(*fixed, 0), ElementsAre(0, 3));
  EXPECT_THAT(Of(*fixed, 1), ElementsAre(1, 5));
  Step(fixed.get(), 0, 0, {1, 2, 0, 3});
  EXPECT_THAT(Of(*fixed, 0), ElementsAre(0, 3));
  fixed->Forget({0, 3});
  Step(fixed.get(), 0, 0, {1, 2});
  EXPECT_THAT(Of(*fixed, 0), ElementsAre(0, 1));
  Step(fixed.get(), 0, 0, {3, 2});
  EXPECT_THAT(Of(*fixed, 0), ElementsAre(0, 3));
}

TEST(StaticTest, CanBeReplacedByAnotherPolicy) {
  PoolShape shape = kShape;
  shape.slots = 4;
  auto placement = Make(shape, {.kind = PolicyKind::kStatic,
                                .profile = {9, 8, 7, 6, 0, 0,  //
                                            0, 0, 0, 0, 0, 0}});
  EXPECT_THAT(Of(*placement, 0), ElementsAre(0, 1, 2, 3));
  const auto evicted = placement->SetPolicy({.kind = PolicyKind::kTide});
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_THAT(*evicted, ElementsAre(ExpertRef{0, 0}, ExpertRef{0, 1}));
  Step(placement.get(), 0, 1, {4, 5});
  EXPECT_THAT(Of(*placement, 1), ElementsAre(4, 5));
  EXPECT_EQ(placement->policy_name(), "tide");
}

// Uses three of six experts repeatedly, then the other three.
TEST(AdaptiveTest, KeepsTheExpertsInUse) {
  PoolShape shape = kShape;
  shape.top_k = 3;
  auto adaptive = Make(shape, {});
  EXPECT_EQ(adaptive->policy_name(), "adaptive");
  for (int step = 0; step < 60; ++step) {
    for (int layer = 0; layer < 2; ++layer) {
      Step(adaptive.get(), step, layer,
           step < 30 ? std::vector<int32_t>{1, 3, 5} : std::vector<int32_t>{0, 2, 4});
    }
    if (step == 29) {
      EXPECT_THAT(Of(*adaptive, 0), ElementsAre(1, 3, 5));
      EXPECT_THAT(Of(*adaptive, 1), ElementsAre(1, 3, 5));
    }
  }
  EXPECT_THAT(Of(*adaptive, 0), ElementsAre(0, 2, 4));
  EXPECT_THAT(Of(*adaptive, 1), ElementsAre(0, 2, 4));
}

// A prompt will need the second layer's experts before it needs the first layer's again. This also
// holds on a cold start.
TEST(AdaptiveTest, APromptDoesNotEvictResidentsOfLaterLayers) {
  const PoolShape shape{.layers = 2, .experts = 16, .top_k = 2, .slots = 16};
  std::vector<int32_t> all(shape.experts);
  std::iota(all.begin(), all.end(), 0);
  for (const int decoded : {0, 1, 30}) {
    SCOPED_TRACE(decoded);
    auto adaptive = Make(shape, {});
    for (int step = 0; step < decoded; ++step) {
      for (int layer = 0; layer < 2; ++layer) Step(adaptive.get(), step, layer, {5, 6 + step % 10});
    }
    const std::vector<int> before = Of(*adaptive, 1);
    Step(adaptive.get(), decoded, 0, all);
    EXPECT_EQ(Of(*adaptive, 1), before);
  }
}

// While all experts have slots, the policy learns from some of the forwards.
TEST(AdaptiveTest, LearnsWhileAllExpertsHaveSlots) {
  PoolShape shape = kShape;
  shape.top_k = 3;
  shape.slots = shape.all_experts();
  auto adaptive = Make(shape, {});
  for (int step = 0; step < 80; ++step) {
    for (int layer = 0; layer < 2; ++layer) Step(adaptive.get(), step, layer, {1, 3, 5});
  }
  ASSERT_TRUE(adaptive->Resize(6).ok());
  EXPECT_THAT(Of(*adaptive, 0), ElementsAre(1, 3, 5));
  EXPECT_THAT(Of(*adaptive, 1), ElementsAre(1, 3, 5));
}

// Two layers with the same uses. A miss in the second one costs more.
TEST(AdaptiveTest, KeepsExpertsThatCostMoreToRead) {
  PoolShape shape{.layers = 2, .experts = 8, .top_k = 1, .slots = 6};
  std::vector<int> residents;
  for (const std::vector<float>& costs : {std::vector<float>{}, std::vector<float>{0.4f, 1.6f}}) {
    shape.miss_cost = costs;
    auto adaptive = Make(shape, {});
    std::mt19937 random(3);
    for (int step = 0; step < 300; ++step) {
      for (int layer = 0; layer < 2; ++layer) {
        Step(adaptive.get(), step, layer, {static_cast<int32_t>(random() % 8)});
      }
    }
    residents.push_back(adaptive->residency().residents_of(1));
  }
  EXPECT_LE(residents[0], 5);
  EXPECT_EQ(residents[1], 6);
}

// One layer reuses its experts soon, and the other does not.
TEST(AdaptiveTest, GivesSlotsToTheLayerWithMoreReuse) {
  const PoolShape shape{.layers = 2, .experts = 8, .top_k = 1, .slots = 4};
  auto adaptive = Make(shape, {});
  for (int step = 0; step < 80; ++step) {
    Step(adaptive.get(), step, 0, {step % 3});
    Step(adaptive.get(), step, 1, {step * 5 % 8});
  }
  EXPECT_THAT(Of(*adaptive, 0), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tidepool::moe
