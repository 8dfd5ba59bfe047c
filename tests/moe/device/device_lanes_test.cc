// Layers that are computed by a device and the CPU together have the bits of the CPU alone.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/moe/device/device_rig.h"

namespace tidepool::moe {
namespace {

constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                    PolicyKind::kStatic};
// 10, 25, 50 and 100 % of the experts.
constexpr int64_t kSlots[] = {4, 9, 18, 36};

// Layers of more rows than this many do not fit into the workspace of the tests.
constexpr SchedulerMemory kSmall = {.whole_bytes = 0, .kept_bytes = 0, .call_bytes = 1};

struct Variant {
  int64_t slots;
  int64_t host_slots;
  int seed;
};

class DeviceLanesTest : public testing::TestWithParam<Variant> {};

int64_t RandomCount(std::mt19937* random) {
  switch ((*random)() % 8) {
    case 0:
      return 5 + static_cast<int64_t>((*random)() % 12);
    case 1:
      return 17 + static_cast<int64_t>((*random)() % 60);
    default:
      return 1 + static_cast<int64_t>((*random)() % 3);
  }
}

TEST_P(DeviceLanesTest, TheBitsAreThoseOfTheCpu) {
  const RandomExperts model;
  const auto [slots, host_slots, seed] = GetParam();
  for (const PolicyKind policy : kPolicies) {
    SCOPED_TRACE(PolicyName(policy));
    DeviceRig rig(model, {.slots = slots,
                          .staging = 2 + seed % 3,
                          .host_slots = host_slots,
                          .policy = policy,
                          .prefetch = seed % 2 == 0 ? Prefetch::kOn : Prefetch::kOff,
                          .seed = seed});
    const bool is_loaded = seed % 4 != 3;
    if (is_loaded) {
      ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
    }
    std::mt19937 random(seed);
    for (int step = 0; step < 25; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const Tokens tokens(RandomCount(&random), &random);
        const SchedulerMemory memory = random() % 2 == 0 ? kSmall : SchedulerMemory();
        if (rig.experts->WantsHints() && random() % 2 == 0) {
          const std::vector<int32_t> guess = {static_cast<int32_t>(random() % kExperts),
                                              static_cast<int32_t>(random() % kExperts)};
          rig.experts->PrefetchHint(static_cast<int>(random() % kLayers), guess);
        }
        const auto out = rig.Run(tokens, step, layer, memory);
        ASSERT_TRUE(out.ok()) << out.status();
        ASSERT_EQ(*out, rig.Expected(tokens, layer)) << "step " << step << " layer " << layer;
        rig.CheckMemory();
      }
    }
    const OffloadStats stats = *rig.experts->Stats();
    // At the start, the device only gets experts that the host has.
    const bool all_on_device = slots == kAll && host_slots == kAll && is_loaded;
    EXPECT_EQ(stats.placement.misses() > 0, !all_on_device);
    if (slots < kAll) {
      EXPECT_GT(stats.host->copied, 0);
    }
  }
}

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  int seed = 0;
  for (const int64_t slots : kSlots) {
    for (const int64_t host_slots : {kAll, int64_t{4}, int64_t{14}}) {
      variants.push_back({slots, host_slots, seed++});
    }
  }
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Residencies, DeviceLanesTest, testing::ValuesIn(Variants()),
                         [](const auto& variant) {
                           return absl::StrCat("Device", variant.param.slots, "Host",
                                               variant.param.host_slots);
                         });

TEST(DeviceLaneTest, BothLanesWorkOnOneLayer) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 9, .policy = PolicyKind::kStatic});
  ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
  std::mt19937 random(3);
  for (int step = 0; step < 50; ++step) {
    // This takes about as long as a copy.
    for (int i = 0; i < 100; ++i) {
      rig.experts->NoteHostWork(
          {RandomExperts::kRecordBytes, RandomExperts::kRecordBytes, absl::Microseconds(4)});
    }
    const Tokens tokens(3, &random);
    const auto out = rig.Run(tokens, step, step % kLayers);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(*out, rig.Expected(tokens, step % kLayers));
  }
  const OffloadStats stats = *rig.experts->Stats();
  EXPECT_GT(stats.placement.hits, 0);
  EXPECT_GT(stats.host->copied, 0);
  EXPECT_GT(stats.host->computed_on_cpu, 0);
  EXPECT_GT(stats.host->cpu_time, absl::ZeroDuration());
}

// With more rows, or without x in the host's memory, the CPU computes nothing.
TEST(DeviceLaneTest, TheCpuOnlyComputesLayersWithFewRows) {
  const RandomExperts model;
  DeviceRig rig(model, {.slots = 9, .policy = PolicyKind::kStatic});
  ASSERT_TRUE(rig.experts->LoadResidents({}).ok());
  rig.MakeCpuFast();
  std::mt19937 random(3);
  const auto run = [&](int64_t count) {
    const Tokens tokens(count, &random);
    const auto out = rig.Run(tokens, 0, 0);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(*out, rig.Expected(tokens, 0));
  };
  run(kHostLaneRows + 1);
  EXPECT_EQ(rig.experts->Stats()->host->computed_on_cpu, 0);
  run(kHostLaneRows);
  EXPECT_GT(rig.experts->Stats()->host->computed_on_cpu, 0);
}

}  // namespace
}  // namespace tidepool::moe
