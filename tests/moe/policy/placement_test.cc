#include "moe/policy/placement.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns the swaps that the test sets.
class ScriptedPolicy final : public PlacementPolicy {
 public:
  ScriptedPolicy(std::vector<ExpertRef> fill, std::vector<Swap>* script)
      : fill_(std::move(fill)), script_(script) {}

  absl::string_view name() const override { return "scripted"; }
  std::vector<ExpertRef> Fill(const Residency&) override { return fill_; }
  void Decide(const LayerNeeds&, const Residency&, std::vector<Swap>* swaps) override {
    *swaps = std::exchange(*script_, {});
  }
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override {
    std::vector<ExpertRef> shed;
    for (int64_t i = 0; residency.residents() - static_cast<int64_t>(shed.size()) > slots; ++i) {
      if (residency.IsResident(fill_[i])) shed.push_back(fill_[i]);
    }
    return shed;
  }

 private:
  const std::vector<ExpertRef> fill_;
  std::vector<Swap>* const script_;
};

std::string Text(const Lookup& lookup) {
  std::string text = std::to_string(lookup.expert) + "x" + std::to_string(lookup.tokens);
  switch (lookup.action) {
    case LookupAction::kHit:
      text += " hit";
      break;
    case LookupAction::kInsert:
      text += " insert";
      break;
    case LookupAction::kPassThrough:
      text += " pass";
      break;
  }
  if (lookup.victim.valid()) {
    text +=
        " for " + std::to_string(lookup.victim.layer) + "/" + std::to_string(lookup.victim.expert);
  }
  return text;
}

std::vector<std::string> DecideText(Placement* placement, int layer, std::vector<int32_t> ids) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / placement->shape().top_k;
  std::vector<std::string> texts;
  for (const Lookup& lookup : placement->Decide({.layer = layer, .tokens = tokens, .ids = ids})) {
    texts.push_back(Text(lookup));
  }
  return texts;
}

constexpr PoolShape kShape{.layers = 2, .experts = 4, .top_k = 2, .slots = 3};

TEST(PlacementTest, AppliesAndCountsTheSwapsOfThePolicy) {
  std::vector<Swap> script;
  Placement placement(
      kShape, std::make_unique<ScriptedPolicy>(std::vector<ExpertRef>{{0, 1}, {1, 0}}, &script));
  EXPECT_THAT(placement.residents(), ElementsAre(ExpertRef{0, 1}, ExpertRef{1, 0}));

  script = {{3, ExpertRef()}};
  EXPECT_THAT(DecideText(&placement, 0, {3, 1, 1, 2}),
              ElementsAre("1x2 hit", "2x1 pass", "3x1 insert"));
  // A victim that this layer needs is still a hit.
  script = {{0, {0, 1}}, {2, {1, 0}}};
  EXPECT_THAT(DecideText(&placement, 0, {0, 1, 2, 3}),
              ElementsAre("0x1 insert for 0/1", "1x1 hit", "2x1 insert for 1/0", "3x1 hit"));
  EXPECT_THAT(placement.residents(),
              ElementsAre(ExpertRef{0, 0}, ExpertRef{0, 2}, ExpertRef{0, 3}));
  EXPECT_EQ(placement.counters()[0],
            (PlacementCounters{.hits = 3, .promotions = 3, .pass_throughs = 1, .evictions = 1}));
  EXPECT_EQ(placement.counters()[1], (PlacementCounters{.evictions = 1}));
  EXPECT_EQ(placement.Total().misses(), 4);
  EXPECT_EQ(placement.Total().lookups(), 7);
}

// A pool below another one sees only the choices that the upper one does not serve.
TEST(PlacementTest, IgnoresChoicesThatAnotherTierHasServed) {
  constexpr int32_t kNone = LayerRouting::kNoExpert;
  for (const PolicyKind kind : {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru}) {
    auto placement =
        Placement::Create({.layers = 2, .experts = 8, .top_k = 2, .slots = 4}, {.kind = kind});
    ASSERT_TRUE(placement.ok());
    for (int step = 0; step < 40; ++step) {
      EXPECT_THAT(DecideText(placement->get(), 0, {kNone, kNone}), IsEmpty());
      EXPECT_EQ(DecideText(placement->get(), 1, {kNone, 6, 7, kNone}).size(), 2u);
    }
    EXPECT_THAT(DecideText(placement->get(), 1, {kNone, 6, 7, kNone}),
                ElementsAre("6x1 hit", "7x1 hit"));
    EXPECT_EQ((*placement)->Total().lookups(), 82);
  }
}

TEST(PlacementTest, ForgetFreesTheSlot) {
  std::vector<Swap> script;
  Placement placement(kShape, std::make_unique<ScriptedPolicy>(
                                  std::vector<ExpertRef>{{0, 1}, {1, 0}, {1, 1}}, &script));
  placement.Forget({1, 0});
  placement.Forget({1, 0});
  EXPECT_EQ(placement.residency().free_slots(), 1);
  script = {{2, ExpertRef()}};
  EXPECT_THAT(DecideText(&placement, 1, {0, 2}), ElementsAre("0x1 pass", "2x1 insert"));
}

TEST(PlacementTest, ResizeEvictsOrAddsFreeSlots) {
  std::vector<Swap> script;
  Placement placement(kShape, std::make_unique<ScriptedPolicy>(
                                  std::vector<ExpertRef>{{0, 1}, {1, 0}, {1, 1}}, &script));
  auto evicted = placement.Resize(2);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_THAT(*evicted, ElementsAre(ExpertRef{0, 1}));
  EXPECT_THAT(placement.residents(), ElementsAre(ExpertRef{1, 0}, ExpertRef{1, 1}));
  EXPECT_EQ(placement.residency().free_slots(), 0);

  evicted = placement.Resize(8);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_THAT(*evicted, IsEmpty());
  EXPECT_EQ(placement.residency().free_slots(), 6);
}

TEST(PlacementTest, RejectsInvalidSizes) {
  std::vector<Swap> script;
  Placement placement(kShape, std::make_unique<ScriptedPolicy>(
                                  std::vector<ExpertRef>{{0, 1}, {1, 0}, {1, 1}}, &script));
  EXPECT_EQ(placement.Resize(0).status().message(),
            "the number of slots is 0; it must be 1 to 8 for 2 layers of 4 experts");
  EXPECT_EQ(placement.Resize(9).status().code(), absl::StatusCode::kInvalidArgument);
  placement.Pin({0, 1});
  placement.Pin({1, 0});
  EXPECT_EQ(placement.Resize(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(placement.residency().residents(), 3);
}

TEST(PlacementTest, RejectsSizesTooSmallForPinsWithEveryPolicy) {
  for (const PolicyKind kind :
       {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru, PolicyKind::kStatic}) {
    SCOPED_TRACE(PolicyName(kind));
    const PoolShape shape{.layers = 2, .experts = 6, .top_k = 2, .slots = 8};
    auto placement = Placement::Create(shape, {.kind = kind});
    ASSERT_TRUE(placement.ok()) << placement.status();
    for (const ExpertRef expert : (*placement)->residents()) {
      if (expert.layer == 0) (*placement)->Pin(expert);
    }
    ASSERT_EQ((*placement)->residency().residents_of(0), 4);
    EXPECT_EQ((*placement)->Resize(3).status().message(),
              "3 slots are too few: experts in use need 4; try again");
    EXPECT_EQ((*placement)->residency().residents(), 8);
    ASSERT_TRUE((*placement)->Resize(4).ok());
    EXPECT_EQ((*placement)->residency().residents_of(0), 4);
    EXPECT_EQ((*placement)->residency().residents_of(1), 0);
  }
}

TEST(PlacementTest, RejectsInvalidOptions) {
  const PoolShape bad{.layers = 2, .experts = 4, .top_k = 5, .slots = 3};
  EXPECT_EQ(Placement::Create(bad, {}).status().message(),
            "top_k is 5; it must be 1 to 4, the number of experts of a layer");
  EXPECT_EQ(Placement::Create(kShape, {.refresh_interval = 0}).status().message(),
            "the refresh interval is 0 steps; it must be 1 or more");
  EXPECT_TRUE(
      absl::StrContains(Placement::Create(kShape, {.kind = PolicyKind::kStatic, .profile = {1, 2}})
                            .status()
                            .message(),
                        "the profile has 2 experts, but the model has 2 layers of 4 experts"));
  EXPECT_TRUE(absl::StrContains(ParsePolicyKind("fifo").status().message(),
                                "unknown offload policy \"fifo\"; expected one of: adaptive"));
}

}  // namespace
}  // namespace tidepool::moe
