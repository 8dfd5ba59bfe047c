#include "moe/offload_change.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 experts of 10 bytes each; 20 slots and 5 staging records, all in use.
constexpr TierMemory kMemory = {.slots = 20,
                                .staging = 5,
                                .in_use = 25,
                                .all_experts = 100,
                                .top_k = 4,
                                .record_bytes = 10,
                                .expert_bytes = 1000};

TEST(SlotsAfterTest, BytesAndSharesPayForSlotsAndStaging) {
  EXPECT_EQ(*SlotsAfter({}, kMemory), 20);
  EXPECT_EQ(*SlotsAfter({.expert_memory_bytes = 119}, kMemory), 6);
  EXPECT_EQ(*SlotsAfter({.expert_memory_bytes = 90}, kMemory), 4);
  EXPECT_EQ(*SlotsAfter({.expert_memory_bytes = 100000}, kMemory), 100);
  EXPECT_EQ(*SlotsAfter({.expert_memory_share = 0.5}, kMemory), 45);
  EXPECT_EQ(*SlotsAfter({.expert_memory_share = 1}, kMemory), 100);
}

TEST(SlotsAfterTest, RejectsLessThanOneTokenNeeds) {
  const auto slots = SlotsAfter({.expert_memory_bytes = 89}, kMemory);
  EXPECT_TRUE(absl::IsInvalidArgument(slots.status())) << slots.status();
  EXPECT_THAT(slots.status().message(), HasSubstr("accepted: 90 bytes or more"));
}

TEST(SlotsAfterTest, RejectsGrowthBeyondTheAvailableMemory) {
  EXPECT_EQ(*SlotsAfter({.expert_memory_bytes = 300, .available_bytes = 50}, kMemory), 25);
  const auto slots = SlotsAfter({.expert_memory_bytes = 310, .available_bytes = 50}, kMemory);
  EXPECT_TRUE(absl::IsResourceExhausted(slots.status())) << slots.status();
  EXPECT_THAT(slots.status().message(), HasSubstr("accepted: up to 300"));
  // Memory is always enough for a smaller pool.
  EXPECT_EQ(*SlotsAfter({.expert_memory_bytes = 200, .available_bytes = -1}, kMemory), 15);
}

TEST(PolicyAfterTest, ChangesOnlyFieldsThatAreSet) {
  const PolicyOptions tide = {.kind = PolicyKind::kTide, .refresh_interval = 7};
  EXPECT_EQ(PolicyAfter({}, tide, {})->refresh_interval, 7);
  EXPECT_EQ(PolicyAfter({.refresh_interval = 3}, tide, {})->refresh_interval, 3);
  EXPECT_EQ(PolicyAfter({.policy = PolicyKind::kLru}, tide, {})->kind, PolicyKind::kLru);
  EXPECT_TRUE(absl::IsInvalidArgument(PolicyAfter({.refresh_interval = 0}, tide, {}).status()));
}

TEST(PolicyAfterTest, StaticUsesTheProfileOrElseTheCounts) {
  const OffloadChange change = {.policy = PolicyKind::kStatic};
  const std::vector<int64_t> uses = {0, 3};
  EXPECT_THAT(PolicyAfter(change, {.profile = {1, 2}}, uses)->profile, ElementsAre(1, 2));
  EXPECT_THAT(PolicyAfter(change, {}, uses)->profile, ElementsAre(0, 3));
  const std::vector<int64_t> none = {0, 0};
  EXPECT_TRUE(absl::IsFailedPrecondition(PolicyAfter(change, {}, none).status()));
}

TEST(ReplacesPolicyTest, KeepsThePolicyIfNothingChanges) {
  const PolicyOptions lru = {.kind = PolicyKind::kLru, .refresh_interval = 1};
  const PolicyOptions tide = {.kind = PolicyKind::kTide, .refresh_interval = 1};
  EXPECT_FALSE(ReplacesPolicy({.policy = PolicyKind::kLru}, lru, lru));
  EXPECT_FALSE(ReplacesPolicy({}, lru, {.kind = PolicyKind::kLru, .refresh_interval = 2}));
  EXPECT_TRUE(ReplacesPolicy({}, tide, {.kind = PolicyKind::kTide, .refresh_interval = 2}));
  EXPECT_TRUE(ReplacesPolicy({.policy = PolicyKind::kTide}, lru, tide));
  const PolicyOptions fixed = {.kind = PolicyKind::kStatic};
  EXPECT_TRUE(ReplacesPolicy({.policy = PolicyKind::kStatic}, fixed, fixed));
  EXPECT_FALSE(ReplacesPolicy({}, fixed, fixed));
}

}  // namespace
}  // namespace tidepool::moe
