// Changes by operators while TieredExperts are in use.
#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "moe/tiered_experts.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                    PolicyKind::kStatic};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

absl::Status RunStep(const Master& master, int64_t step, Routings* routings,
                     TieredExperts* experts) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const LayerRouting routing = routings->Next(step, layer);
    experts->Request(routing, routings->Distinct());
    if (layer + 1 < kLayers) experts->PrefetchHint(layer + 1, routings->Guess());
    if (absl::Status drained = Drain(master, layer, routings->Distinct(), experts); !drained.ok()) {
      return drained;
    }
  }
  return absl::OkStatus();
}

int64_t Residents(const ExpertMap& map) {
  return std::count(map.resident.begin(), map.resident.end(), true);
}

// Random changes at random times, while some reads fail or are late: the bytes given out are right,
// and memory stays within the last limit.
TEST(TieredControlTest, RandomChangesKeepBytesAndBudget) {
  const Master master;
  for (int seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Rig rig(master, kPolicies[seed % 4], kTopK + random() % 20, seed);
    const int64_t record = rig.experts->Settings().record_bytes;
    rig.experts->LoadResidents({});
    Routings routings(seed + 100);
    for (int step = 0; step < 150; ++step) {
      OffloadChange change;
      if (random() % 3 == 0) change.policy = kPolicies[random() % 4];
      if (random() % 3 == 0) change.refresh_interval = 1 + random() % 5;
      if (random() % 2 == 0) {
        change.expert_memory_bytes = (kTopK + kStaging + random() % kAll) * record + random() % 99;
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
                  std::min<int64_t>(kAll, *change.expert_memory_bytes / record - kStaging));
        EXPECT_LE(rig.experts->Stats()->resident_bytes,
                  rig.experts->Settings().slots * record + kStaging * record);
      }
      const int64_t failing = random() % 5 == 0 ? static_cast<int64_t>(random() % kAll) : -1;
      rig.puppet->set_fate([=](const RecordRead& read) {
        return read.ticket == failing ? absl::UnavailableError("is unreadable") : absl::OkStatus();
      });
      const absl::Status ran = RunStep(master, step, &routings, rig.experts.get());
      EXPECT_TRUE(ran.ok() || absl::IsUnavailable(ran)) << ran;
      if (failing < 0) rig.puppet->set_fate(nullptr);
      EXPECT_LE(Residents(rig.experts->Map()), rig.experts->Settings().slots);
    }
  }
}

TEST(TieredControlTest, SettingsReturnsTheLastChange) {
  const Master master;
  Rig rig(master, PolicyKind::kLru, 9, 1);
  OffloadControl* control = rig.experts->control();
  OffloadSettings settings = control->Settings();
  EXPECT_EQ(settings.policy, PolicyKind::kLru);
  EXPECT_EQ(settings.refresh_interval, 3);
  EXPECT_EQ(settings.slots, 9);
  EXPECT_EQ(settings.staging, kStaging);
  EXPECT_EQ(settings.experts, kAll);
  EXPECT_EQ(settings.expert_memory_bytes, (9 + kStaging) * settings.record_bytes);
  ASSERT_TRUE(control
                  ->Change({.policy = PolicyKind::kTide,
                            .refresh_interval = 7,
                            .expert_memory_share = 0.5,
                            .prefetch = Prefetch::kOff})
                  .ok());
  settings = control->Settings();
  EXPECT_EQ(settings.policy, PolicyKind::kTide);
  EXPECT_EQ(settings.refresh_interval, 7);
  EXPECT_EQ(settings.prefetch, Prefetch::kOff);
  EXPECT_EQ(settings.slots, kAll / 2 - kStaging);
  const OffloadStats stats = *rig.experts->Stats();
  EXPECT_EQ(stats.policy, "tide");
  EXPECT_EQ(stats.refresh_interval, 7);
  EXPECT_EQ(stats.prefetch, Prefetch::kOff);
  EXPECT_EQ(stats.capacity_bytes, settings.expert_memory_bytes);
  EXPECT_EQ(stats.record_bytes, settings.record_bytes);
  ASSERT_TRUE(control->Change({}).ok());
  EXPECT_EQ(control->Settings().slots, settings.slots);
  // Memory above the need of all experts is clamped to it.
  ASSERT_TRUE(control->Change({.expert_memory_bytes = int64_t{1} << 40}).ok());
  EXPECT_EQ(control->Settings().slots, kAll);
  ASSERT_TRUE(control->Change({.expert_memory_share = 0.5}).ok());
  ASSERT_TRUE(control->Change({.expert_memory_share = 1}).ok());
  EXPECT_EQ(control->Settings().slots, kAll);
}

// A slot can hold any expert, so each slot is as large as the largest expert.
TEST(TieredControlTest, AShareOfUnequalExpertsCountsTheirBytes) {
  const Master master(4 * kRows);
  Rig rig(master, PolicyKind::kLru, 9, 1);
  const int64_t record = rig.experts->Settings().record_bytes;
  const int64_t bytes = master.records().total_bytes();
  ASSERT_LT(bytes, kAll * record * 2 / 3);
  ASSERT_TRUE(rig.experts->Change({.expert_memory_share = 0.5}).ok());
  EXPECT_EQ(rig.experts->Settings().slots, bytes / 2 / record - kStaging);
  EXPECT_LE(rig.experts->Settings().expert_memory_bytes, bytes / 2);
  rig.experts->LoadResidents({});
  Routings routings(8);
  for (int step = 0; step < 30; ++step) {
    ASSERT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
  }
  ASSERT_TRUE(rig.experts->Change({.expert_memory_share = 1}).ok());
  EXPECT_EQ(rig.experts->Settings().slots, kAll);
}

TEST(TieredControlTest, ErrorsNameFieldValueAndRangeAndChangeNothing) {
  const Master master;
  Rig rig(master, PolicyKind::kTide, 9, 1);
  OffloadControl* control = rig.experts->control();
  const int64_t record = control->Settings().record_bytes;
  const auto refused = [&](OffloadChange change) {
    change.prefetch = Prefetch::kOff;
    const absl::Status status = control->Change(change);
    const OffloadSettings settings = control->Settings();
    EXPECT_EQ(settings.slots, 9);
    EXPECT_EQ(settings.policy, PolicyKind::kTide);
    EXPECT_EQ(settings.refresh_interval, 3);
    EXPECT_EQ(settings.prefetch, Prefetch::kOn);
    return status;
  };
  const int64_t least = (kStaging + kTopK) * record;
  absl::Status status = refused({.expert_memory_bytes = least - 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(absl::StrCat("expert_memory_bytes is ", least - 1)),
                                     HasSubstr(absl::StrCat("accepted: ", least, " bytes or more")),
                                     HasSubstr("3 staging records and the 4 experts")));
  for (const int64_t bytes : {int64_t{-5}, int64_t{0}, record}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused({.expert_memory_bytes = bytes})));
  }
  for (const double share : {-1.0, 0.0, 1.01, std::nan(""), 0.1}) {
    status = refused({.expert_memory_share = share});
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(Message(status), HasSubstr("expert_memory_share is "));
  }
  status = refused({.expert_memory_bytes = least, .expert_memory_share = 0.5});
  EXPECT_THAT(Message(status), HasSubstr("set one of them"));
  status = refused({.policy = PolicyKind::kLru, .refresh_interval = 0});
  EXPECT_THAT(Message(status), HasSubstr("refresh_interval is 0; accepted: 1 or more"));
  status = refused({.policy = PolicyKind::kStatic});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("policy is static"), HasSubstr("--profile")));
  // No buffer is in use yet: twenty slots and the staging records need exactly this memory.
  const int64_t want = (20 + kStaging) * record;
  status = refused({.expert_memory_bytes = want, .available_bytes = want - 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(absl::StrCat("expert_memory_bytes is ", want)),
                                     HasSubstr(absl::StrCat("up to ", want - 1, " bytes"))));
  for (const int64_t nothing : {0, -4096}) {
    status = refused({.expert_memory_bytes = want, .available_bytes = nothing});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Message(status), HasSubstr("up to 0 bytes"));
  }
  EXPECT_TRUE(control->Change({.expert_memory_bytes = want, .available_bytes = want}).ok());
}

// Shrinking the pool also waits for the reads of a failed layer.
TEST(TieredControlTest, ShrinkingWaitsForReadsInFlight) {
  const Master master;
  for (int seed = 0; seed < 20; ++seed) {
    Rig rig(master, PolicyKind::kLru, kAll - 1, seed);
    const int64_t record = rig.experts->Settings().record_bytes;
    rig.puppet->set_fate([&](const RecordRead& read) {
      return read.offset == 0 ? absl::UnavailableError("cannot be read") : absl::OkStatus();
    });
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    rig.experts->Request({.step = 0, .layer = 0, .tokens = 3, .ids = all}, all);
    ASSERT_FALSE(Drain(master, 0, all, rig.experts.get()).ok());
    ASSERT_TRUE(rig.experts->Change({.expert_memory_bytes = (kTopK + kStaging) * record}).ok());
    const OffloadStats stats = *rig.experts->Stats();
    EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
    EXPECT_EQ(stats.capacity_bytes, (kTopK + kStaging) * record);
  }
}

TEST(TieredControlTest, ShrinkingFailsIfTheDiskHangs) {
  const Master master;
  auto reader = std::make_unique<PuppetReader>(&master.bytes(), 1);
  PuppetReader* const puppet = reader.get();
  const auto experts = TieredExperts::Create(master.records(), std::move(reader),
                                             {.top_k = kTopK,
                                              .slots = 9,
                                              .staging = kStaging,
                                              .policy = {.kind = PolicyKind::kLru},
                                              .layer_numbers = {1, 2, 5},
                                              .shrink_patience = absl::Milliseconds(10)});
  ASSERT_TRUE(experts.ok()) << experts.status();
  std::promise<void> asked;
  std::promise<void> answer;
  puppet->set_fate([&asked, answered = answer.get_future().share()](const RecordRead&) {
    asked.set_value();
    answered.wait();
    return absl::OkStatus();
  });
  (*experts)->PrefetchHint(1, {kExperts - 1});
  asked.get_future().wait();
  const OffloadChange less = {
      .policy = PolicyKind::kTide,
      .expert_memory_bytes = (kTopK + kStaging) * (*experts)->Settings().record_bytes};
  const absl::Status status = (*experts)->Change(less);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("nothing was changed"), HasSubstr("1 reads"),
                                     HasSubstr("model.tidepack")));
  EXPECT_EQ((*experts)->Settings().slots, 9);
  EXPECT_EQ((*experts)->Settings().policy, PolicyKind::kLru);
  answer.set_value();
  puppet->WaitIdle();
  EXPECT_TRUE((*experts)->Change(less).ok());
  EXPECT_EQ((*experts)->Settings().slots, kTopK);
}

TEST(TieredControlTest, ShrinkingFreesMemoryAndGrowthFillsIt) {
  const Master master;
  Rig rig(master, PolicyKind::kLru, kAll, 4);
  rig.experts->LoadResidents({});
  const int64_t record = rig.experts->Settings().record_bytes;
  EXPECT_EQ(Residents(rig.experts->Map()), kAll);
  ASSERT_TRUE(rig.experts->Change({.expert_memory_bytes = (6 + kStaging) * record}).ok());
  EXPECT_EQ(Residents(rig.experts->Map()), 6);
  EXPECT_EQ(rig.experts->Stats()->resident_bytes, 6 * record);
  EXPECT_EQ(rig.experts->Stats()->placement.evictions, kAll - 6);
  ASSERT_TRUE(rig.experts->Change({.expert_memory_bytes = (20 + kStaging) * record}).ok());
  EXPECT_EQ(Residents(rig.experts->Map()), 6);
  Routings routings(8);
  for (int step = 0; step < 30; ++step) {
    ASSERT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
  }
  EXPECT_EQ(Residents(rig.experts->Map()), 20);
}

// Steps that are not a multiple of the interval promote nothing, except after RefreshSoon.
TEST(TieredControlTest, RefreshSoonAffectsOnlyTheNextStep) {
  const Master master;
  Rig rig(master, PolicyKind::kTide, 12, 4);
  rig.experts->LoadResidents({});
  ASSERT_TRUE(rig.experts->Change({.refresh_interval = 1000}).ok());
  Routings routings(8);
  const auto promotions_of = [&](int64_t step) {
    const int64_t before = rig.experts->Stats()->placement.promotions;
    EXPECT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
    return rig.experts->Stats()->placement.promotions - before;
  };
  EXPECT_EQ(promotions_of(1), 0);
  EXPECT_EQ(promotions_of(2), 0);
  rig.experts->RefreshSoon();
  EXPECT_GT(promotions_of(3), 0);
  EXPECT_EQ(promotions_of(4), 0);
}

// The uses in the map equal the placement's lookups, and the static policy keeps the most used
// experts.
TEST(TieredControlTest, StaticWithoutAProfileUsesTheCounts) {
  const Master master;
  Rig rig(master, PolicyKind::kLru, 12, 4);
  rig.experts->LoadResidents({});
  Routings routings(8);
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
  }
  const ExpertMap map = rig.experts->Map();
  const PlacementCounters counted = rig.experts->Stats()->placement;
  EXPECT_EQ(std::accumulate(map.uses.begin(), map.uses.end(), int64_t{0}), counted.lookups());
  EXPECT_EQ(map.layer_numbers, (std::vector<int>{1, 2, 5}));
  ASSERT_TRUE(
      rig.experts->Change({.policy = PolicyKind::kStatic, .prefetch = Prefetch::kOff}).ok());
  for (int step = 20; step < 120; ++step) {
    ASSERT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
  }
  // By now, each of the twelve experts was a miss once.
  std::vector<int64_t> kept, left;
  const ExpertMap settled = rig.experts->Map();
  for (size_t i = 0; i < map.uses.size(); ++i) {
    (settled.resident[i] ? kept : left).push_back(map.uses[i]);
  }
  ASSERT_EQ(kept.size(), 12u);
  EXPECT_GE(*std::min_element(kept.begin(), kept.end()),
            *std::max_element(left.begin(), left.end()));
}

TEST(TieredControlTest, StatsByLayerAddUp) {
  const Master master;
  Rig rig(master, PolicyKind::kAdaptive, 12, 4);
  rig.experts->LoadResidents({});
  Routings routings(8);
  for (int step = 0; step < 10; ++step) {
    ASSERT_TRUE(RunStep(master, step, &routings, rig.experts.get()).ok());
  }
  const OffloadStats stats = *rig.experts->Stats();
  ASSERT_EQ(stats.layers.size(), static_cast<size_t>(kLayers));
  PlacementCounters sum;
  for (const LayerCounters& layer : stats.layers) sum += layer.counters;
  EXPECT_TRUE(sum == stats.placement);
  EXPECT_EQ(stats.layers[2].layer, 5);
}

}  // namespace
}  // namespace tidepool::moe
