// Changes by operators while DeviceExperts are in use.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/moe/device/device_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::HasSubstr;

constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                    PolicyKind::kStatic};
constexpr int64_t kRecord = RandomExperts::kRecordBytes;

int64_t Residents(const ExpertMap& map) {
  return std::count(map.resident.begin(), map.resident.end(), true);
}

TEST(DeviceControlTest, RandomChangesKeepBitsAndBudget) {
  const RandomExperts model;
  for (int seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    DeviceRig rig(model, {.slots = kTopK + static_cast<int64_t>(random() % 20),
                          .host_slots = seed % 2 == 0 ? kAll : 10,
                          .policy = kPolicies[seed % 4],
                          .seed = seed});
    ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
    for (int step = 0; step < 40; ++step) {
      OffloadChange change;
      if (random() % 3 == 0) change.policy = kPolicies[random() % 4];
      if (random() % 3 == 0) change.refresh_interval = 1 + random() % 5;
      if (random() % 2 == 0) {
        change.expert_memory_bytes = (kTopK + kStaging + random() % kAll) * kRecord + random() % 99;
      }
      if (random() % 3 == 0) change.prefetch = random() % 2 == 0 ? Prefetch::kOn : Prefetch::kOff;
      if (random() % 4 == 0) rig.experts->RefreshSoon();
      const absl::Status changed = rig.experts->Change(change);
      if (!changed.ok()) {
        // kStatic is refused before any use was counted.
        EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(step, 0);
      } else if (change.expert_memory_bytes.has_value()) {
        EXPECT_EQ(rig.experts->Settings().slots,
                  std::min<int64_t>(kAll, *change.expert_memory_bytes / kRecord - kStaging));
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        const Tokens tokens(1 + static_cast<int64_t>(random() % 3), &random);
        if (rig.experts->WantsHints()) {
          rig.experts->PrefetchHint((layer + 1) % kLayers, {static_cast<int32_t>(random() % 12)});
        }
        const auto out = rig.Run(tokens, step, layer);
        ASSERT_TRUE(out.ok()) << out.status();
        ASSERT_EQ(*out, rig.Expected(tokens, layer)) << "step " << step << " layer " << layer;
        rig.CheckMemory();
      }
      EXPECT_LE(Residents(rig.experts->Map()), rig.experts->Settings().slots);
    }
  }
}

// The device has no room for more experts than at the start.
TEST(DeviceControlTest, GrowthWithoutMemoryChangesNothing) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 9, .device = {.memory_bytes = (9 + kStaging + 2) * kRecord}});
  ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
  const absl::Status grown = rig.experts->Change({.expert_memory_share = 1});
  EXPECT_EQ(grown.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(grown.message()), HasSubstr("--expert-memory"));
  EXPECT_EQ(rig.experts->Settings().slots, 9);
  EXPECT_EQ(rig.experts->Settings().expert_memory_bytes, (9 + kStaging) * kRecord);
  EXPECT_TRUE(rig.Use(0, {0, 1, 2, 7}).ok());
  EXPECT_TRUE(rig.experts->Change({.expert_memory_bytes = (9 + kStaging + 2) * kRecord}).ok());
  EXPECT_EQ(rig.experts->Settings().slots, 11);
}

// Other users of the device's memory, such as KV, can allocate the freed bytes.
TEST(DeviceControlTest, ShrinkingFreesDeviceMemory) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 32});
  ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
  ASSERT_TRUE(rig.Use(0, {0, 1, 2, 3}).ok());
  const size_t before = *rig.device->memory()->available();
  ASSERT_TRUE(rig.experts->Change({.expert_memory_bytes = (8 + kStaging) * kRecord}).ok());
  EXPECT_EQ(*rig.device->memory()->available() - before, 24 * kRecord);
  const auto all = rig.Use(0, {0, 1, 2, 3});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 4u);
}

TEST(DeviceControlTest, StatsDescribeBothTiers) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 9, .host_slots = 20, .policy = PolicyKind::kTide});
  ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
  rig.MakeCpuSlow();
  ASSERT_TRUE(rig.Use(0, {0, 5, 6, 7}).ok());
  const OffloadStats stats = *rig.experts->Stats();
  EXPECT_EQ(stats.slots, 9);
  EXPECT_EQ(stats.staging, kStaging);
  EXPECT_EQ(stats.experts, kAll);
  EXPECT_EQ(stats.capacity_bytes, (9 + kStaging) * kRecord);
  EXPECT_EQ(stats.record_bytes, kRecord);
  EXPECT_EQ(stats.policy, "tide");
  EXPECT_EQ(stats.placement.lookups(), 4);
  ASSERT_EQ(stats.layers.size(), 3u);
  EXPECT_EQ(stats.layers[2].layer, 5);
  EXPECT_EQ(stats.layers[0].counters.misses(), 3);
  EXPECT_EQ(stats.demand_reads, 2);  // the host has expert 5
  ASSERT_TRUE(stats.host.has_value());
  EXPECT_EQ(stats.host->slots, 20);
  EXPECT_EQ(stats.host->capacity_bytes, (20 + kStaging) * kRecord);
  EXPECT_EQ(stats.host->placement.lookups(), 3);
  EXPECT_EQ(stats.host->placement.hits, 1);
  EXPECT_EQ(stats.host->copied, 3);
  ASSERT_TRUE(rig.experts->Change({.expert_memory_bytes = (8 + kStaging) * kRecord}).ok());
  // Shrinking waits for the copies, so all of them are counted.
  const OffloadStats later = *rig.experts->Stats();
  EXPECT_EQ(later.host->copied_bytes, (9 + 3) * kRecord);
  EXPECT_GT(later.host->copy_time, absl::ZeroDuration());
  EXPECT_GT(later.host->copy_bytes_per_s, 0);
  EXPECT_EQ(Difference(later, stats).host->copied, 0);
}

TEST(DeviceControlTest, PrefetchChangesInBothTiers) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 9, .host_slots = 20});
  ASSERT_TRUE(rig.experts->Change({.prefetch = Prefetch::kOff}).ok());
  EXPECT_FALSE(rig.experts->WantsHints());
  EXPECT_EQ(rig.experts->host().Settings().prefetch, Prefetch::kOff);
  EXPECT_EQ(rig.experts->Settings().prefetch, Prefetch::kOff);
  ASSERT_TRUE(rig.experts->Change({.prefetch = Prefetch::kOn}).ok());
  EXPECT_TRUE(rig.experts->WantsHints());
}

}  // namespace
}  // namespace tidepool::moe
