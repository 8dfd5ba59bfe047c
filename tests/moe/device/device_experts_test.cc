#include "moe/device/device_experts.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/moe/device/device_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ids = std::vector<int32_t>;

// With 9 slots, experts 0, 1 and 2 of each layer are resident at the start.
class DeviceExpertsTest : public testing::Test {
 protected:
  void Start(const RigOptions& options = {}) {
    rig_ = nullptr;  // before the new one, which uses the same memory
    rig_ = std::make_unique<DeviceRig>(model_, options);
    ASSERT_TRUE(rig_->experts->LoadResidents({}).ok());
  }
  HostTierStats Lanes() const { return *rig_->experts->Stats()->host; }

  const RandomExperts model_;
  std::unique_ptr<DeviceRig> rig_;
};

TEST_F(DeviceExpertsTest, GivesOutHitsBeforeThePlacementDecides) {
  Start();
  rig_->MakeCpuSlow();
  const Ids ids = {0, 1, 2, 7};
  DeviceExperts& experts = *rig_->experts;
  experts.Request({.layer = 1, .tokens = 1, .ids = ids, .host_lane = HostLane::kOn}, ids);
  const auto hits = experts.NextReady(Patience::kUntilOne);
  ASSERT_TRUE(hits.ok());
  EXPECT_THAT(Where(*hits, Place::kBackend, Found::kResident), ElementsAre(0, 1, 2));
  EXPECT_EQ(experts.placement().Total().lookups(), 0);
  for (const ReadyExpert& ready : *hits) experts.Release(ready.expert);
  const auto rest = rig_->Drain(1);
  ASSERT_TRUE(rest.ok());
  EXPECT_THAT(Where(*rest, Place::kBackend, Found::kFetched), ElementsAre(7));
  EXPECT_EQ(experts.placement().Total().hits, 3);
  EXPECT_EQ(experts.placement().Total().misses(), 1);
}

TEST_F(DeviceExpertsTest, WithoutTheHostLaneThePlacementDecidesFirst) {
  Start();
  const Ids ids = {0, 1, 2, 7};
  rig_->experts->Request({.layer = 1, .tokens = 1, .ids = ids}, ids);
  EXPECT_EQ(rig_->experts->placement().Total().lookups(), 4);
  const auto all = rig_->Drain(1);
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(Where(*all, Place::kBackend, Found::kResident), ElementsAre(0, 1, 2));
  EXPECT_THAT(Where(*all, Place::kBackend, Found::kFetched), ElementsAre(7));
}

TEST_F(DeviceExpertsTest, CopiesMissesAndUsesThem) {
  Start({.slots = 12});
  rig_->MakeCpuSlow();
  const auto all = rig_->Use(0, {0, 5, 6, 7});
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(Where(*all, Place::kBackend, Found::kFetched), ElementsAre(5, 6, 7));
  EXPECT_EQ(Lanes().copied, 3);
  EXPECT_EQ(Lanes().computed_on_cpu, 0);
  // LRU keeps the experts that were used last.
  const auto again = rig_->Use(0, {0, 5, 6, 7});
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(Where(*again, Place::kBackend, Found::kResident), ElementsAre(0, 5, 6, 7));
  EXPECT_EQ(Lanes().copied, 3);
}

TEST_F(DeviceExpertsTest, TheCpuComputesMissesAndTheyAreCopiedForLater) {
  Start({.slots = 12});
  rig_->MakeCpuFast();
  const auto all = rig_->Use(0, {0, 1, 2, 7});
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(Where(*all, Place::kHost, Found::kFetched), ElementsAre(7));
  EXPECT_EQ(Lanes().computed_on_cpu, 1);
  EXPECT_EQ(Lanes().copied_for_later, 1);
  EXPECT_EQ(Lanes().copied, 0);
  const auto again = rig_->Use(0, {0, 1, 2, 7});
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(Where(*again, Place::kBackend, Found::kResident), ElementsAre(0, 1, 2, 7));
}

// A static placement keeps no misses, so they are computed by the CPU and not copied.
TEST_F(DeviceExpertsTest, MissesThatAreNotKeptAreNotCopiedForLater) {
  Start({.policy = PolicyKind::kStatic});
  rig_->MakeCpuFast();
  for (int i = 0; i < 5; ++i) {
    const auto all = rig_->Use(0, {0, 1, 2, 7});
    ASSERT_TRUE(all.ok());
    EXPECT_THAT(Where(*all, Place::kHost, Found::kFetched), ElementsAre(7));
  }
  EXPECT_EQ(Lanes().computed_on_cpu, 5);
  EXPECT_EQ(Lanes().copied_for_later, 0);
}

TEST_F(DeviceExpertsTest, CountsTheWorkOfTheCpu) {
  Start();
  const absl::Duration before = Lanes().cpu_time;
  rig_->experts->NoteHostWork({.bytes = 1000, .row_bytes = 1000, .time = absl::Seconds(2)});
  EXPECT_EQ(Lanes().cpu_time - before, absl::Seconds(2));
  EXPECT_GT(Lanes().cpu_bytes_per_s, 0);
}

// The tide policy keeps the experts that most tokens need. So it evicts an expert that this layer
// also needs.
TEST_F(DeviceExpertsTest, AVictimThatTheLayerNeedsIsComputedFirst) {
  const Ids ids = {0, 5, 6, 7, 5, 6, 7, 8, 5, 6, 7, 9};
  const Ids distinct = {0, 5, 6, 7, 8, 9};
  for (const HostLane lane : {HostLane::kOn, HostLane::kOff}) {
    for (int seed = 0; seed < 8; ++seed) {
      Start({.staging = 1, .policy = PolicyKind::kTide, .seed = seed});
      rig_->MakeCpuSlow();
      rig_->experts->Request({.layer = 0, .tokens = 3, .ids = ids, .host_lane = lane}, distinct);
      const auto all = rig_->Drain(0);
      ASSERT_TRUE(all.ok());
      EXPECT_THAT(Where(*all, Place::kBackend, Found::kResident), ElementsAre(0));
      EXPECT_EQ(all->size(), 6u);
      for (const ReadyExpert& ready : *all) {
        if (ready.expert == 0 && lane == HostLane::kOff) {
          EXPECT_TRUE(ready.leaves);
        }
      }
      const auto again = rig_->Use(0, {4, 5, 6, 7}, HostLane::kOff);
      ASSERT_TRUE(again.ok());
      EXPECT_THAT(Where(*again, Place::kBackend, Found::kResident), ElementsAre(5, 6, 7));
    }
  }
}

// Takes experts in ascending order only, and holds experts that come before their turn, like a
// BoundedMoeLayer. If there is no memory for the next expert, postpones some of the held ones.
void DrainInOrder(int layer, const Ids& expected, const DeviceRig& rig) {
  std::map<int32_t, ReadyExpert> held;
  constexpr int kMaxWaves = 1000;
  int waves = 0;
  for (size_t next = 0; next < expected.size(); ++waves) {
    CHECK(waves < kMaxWaves) << "expert " << expected[next] << " does not come";
    const auto wave = rig.experts->NextReady(Patience::kUntilOne);
    CHECK_OK(wave.status());
    for (const ReadyExpert& ready : *wave) {
      CHECK(ready.place == Place::kBackend);
      CHECK(held.emplace(ready.expert, ready).second);
    }
    if (wave->empty()) {
      auto last = held.rbegin();
      while (last != held.rend() && !last->second.leaves) ++last;
      CHECK(last != held.rend()) << "nothing that leaves, and no memory";
      rig.experts->Postpone(last->first);
      held.erase(last->first);
    }
    for (; next < expected.size() && held.count(expected[next]) > 0; ++next) {
      EXPECT_TRUE(rig.Matches(layer, held[expected[next]])) << "expert " << expected[next];
      rig.experts->Release(expected[next]);
      held.erase(expected[next]);
    }
    rig.CheckMemory();
  }
  EXPECT_TRUE(rig.experts->NextReady(Patience::kUntilOne)->empty());
}

// Few slots, and reads in random order: experts may come before their turn.
TEST_F(DeviceExpertsTest, ALayerInOrderGetsAllExpertsWithFewSlots) {
  for (int seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Start({.slots = kTopK,
           .staging = 1 + seed % 2,
           .host_slots = seed % 4 == 0 ? kAll : 6,
           .host_staging = kStaging,
           .policy = seed % 2 == 0 ? PolicyKind::kLru : PolicyKind::kTide,
           .seed = seed});
    std::mt19937 random(seed);
    for (int step = 0; step < 4; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const Tokens tokens(1 + random() % 12, &random);
        Ids distinct = tokens.ids;
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        rig_->experts->Request({.step = step,
                                .layer = layer,
                                .tokens = tokens.count(),
                                .ids = tokens.ids,
                                .phases = tokens.phases,
                                .requests = tokens.requests},
                               distinct);
        DrainInOrder(layer, distinct, *rig_);
      }
    }
    const HostTierStats lanes = Lanes();
    EXPECT_EQ(lanes.copied + lanes.copied_ahead, rig_->experts->placement().Total().misses());
  }
}

TEST_F(DeviceExpertsTest, APostponedExpertIsGivenOutAgain) {
  const Ids ids = {5, 6, 7, 8};
  for (const int64_t host_slots : {kAll, int64_t{kTopK}}) {
    Start({.slots = kTopK, .host_slots = host_slots, .policy = PolicyKind::kStatic});
    rig_->experts->Request({.layer = 1, .tokens = 1, .ids = ids}, ids);
    const auto wave = rig_->experts->NextReady(Patience::kUntilOne);
    ASSERT_TRUE(wave.ok());
    ASSERT_FALSE(wave->empty());
    for (const ReadyExpert& ready : *wave) {
      EXPECT_TRUE(ready.leaves);
      rig_->experts->Postpone(ready.expert);
    }
    const auto all = rig_->Drain(1);
    ASSERT_TRUE(all.ok());
    EXPECT_THAT(Where(*all, Place::kBackend, Found::kFetched), ElementsAre(5, 6, 7, 8));
    EXPECT_EQ(Lanes().copied, 4);
  }
}

// Ops of earlier layers may still read a buffer when another expert gets it.
TEST_F(DeviceExpertsTest, CopiesWaitForOpsThatUseTheirBuffers) {
  constexpr int64_t kBytes = RandomExperts::kRecordBytes;
  constexpr int kRequests = 8;
  const Ids ids = {5, 6, 7, 8};
  int64_t copied_ahead = 0;
  for (int seed = 0; seed < 30; ++seed) {
    Start({.slots = kTopK, .staging = 2, .policy = PolicyKind::kStatic, .seed = seed});
    const kernels::Buffer used(kRequests * kTopK * kBytes, rig_->device->memory());
    std::vector<const std::byte*> expected;
    for (int i = 0; i < kRequests; ++i) {
      const int layer = 1 + i % 2;
      rig_->experts->Request({.step = i, .layer = layer, .tokens = 1, .ids = ids}, ids);
      for (size_t left = ids.size(); left > 0;) {
        const auto wave = rig_->experts->NextReady(Patience::kUntilOne);
        ASSERT_TRUE(wave.ok());
        for (const ReadyExpert& ready : *wave) {
          std::byte* const to = used.data() + static_cast<int64_t>(expected.size()) * kBytes;
          rig_->device->CopyWithin(ready.weights->gate.data, to, kBytes);
          expected.push_back(model_.record(layer, ready.expert));
          rig_->experts->Release(ready.expert);
          --left;
        }
      }
      rig_->experts->PrefetchHint(2 - i % 2, {8});
    }
    copied_ahead += Lanes().copied_ahead;
    std::vector<std::byte> bytes(used.size());
    ASSERT_TRUE(rig_->device->CopyOut(used.data(), absl::MakeSpan(bytes)).ok());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(std::memcmp(bytes.data() + i * kBytes, expected[i], kBytes), 0) << seed << " " << i;
    }
  }
  EXPECT_GT(copied_ahead, 10);
}

TEST_F(DeviceExpertsTest, ExpectedExpertsAreCopiedAhead) {
  Start();
  rig_->MakeCpuFast();
  EXPECT_TRUE(rig_->experts->WantsHints());
  rig_->experts->PrefetchHint(1, {7, 2, 8});
  const auto all = rig_->Use(1, {0, 1, 7, 9});
  ASSERT_TRUE(all.ok());
  // Expert 7 counts as a miss, but the device computes it.
  EXPECT_THAT(Where(*all, Place::kBackend, Found::kFetched), ElementsAre(7));
  EXPECT_THAT(Where(*all, Place::kHost, Found::kFetched), ElementsAre(9));
  EXPECT_EQ(Lanes().copied_ahead, 1);
  EXPECT_EQ(Lanes().copied, 0);
  EXPECT_EQ(Lanes().computed_on_cpu, 1);
}

// The hint comes between the request and the first experts, as from a TransformerModel.
TEST_F(DeviceExpertsTest, CopiesForTheLayerPrecedeThoseOfHints) {
  Start();
  rig_->MakeCpuSlow();
  const Ids ids = {0, 1, 2, 7};
  rig_->experts->Request({.layer = 0, .tokens = 1, .ids = ids, .host_lane = HostLane::kOn}, ids);
  rig_->experts->PrefetchHint(1, {5});
  const auto all = rig_->Drain(0);
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(Where(*all, Place::kBackend, Found::kFetched), ElementsAre(7));
  ASSERT_TRUE(rig_->Use(1, {0, 1, 2, 5}).ok());
  EXPECT_EQ(Lanes().copied_ahead, 1);
}

TEST_F(DeviceExpertsTest, HintsForExpertsInTheFileGoToTheHostTier) {
  Start({.host_slots = 9});
  rig_->experts->PrefetchHint(1, {7, 8});
  rig_->puppet->WaitIdle();
  EXPECT_EQ(rig_->experts->Stats()->prefetch_bytes, 2 * RandomExperts::kRecordBytes);
  ASSERT_TRUE(rig_->Use(1, {0, 1, 7, 8}).ok());
  EXPECT_EQ(rig_->experts->Stats()->prefetch_used_bytes, 2 * RandomExperts::kRecordBytes);
}

TEST_F(DeviceExpertsTest, WithoutPrefetchNothingIsCopiedAhead) {
  Start({.prefetch = Prefetch::kOff});
  EXPECT_FALSE(rig_->experts->WantsHints());
  const int64_t copied = Lanes().copied_bytes;
  rig_->experts->PrefetchHint(1, {7, 8});
  ASSERT_TRUE(rig_->Use(1, {0, 1, 2, 0 + 3}).ok());
  EXPECT_EQ(Lanes().copied_ahead, 0);
  EXPECT_LE(Lanes().copied_bytes, copied + RandomExperts::kRecordBytes);
}

// The host tier's policy sees the misses of the device, and nothing else.
TEST_F(DeviceExpertsTest, TheHostTierOnlySeesMisses) {
  for (const PolicyKind policy : {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru}) {
    Start({.slots = 15, .host_slots = 20, .policy = policy});
    std::mt19937 random(8);
    for (int step = 0; step < 30; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const Tokens tokens(1 + random() % 3, &random);
        ASSERT_TRUE(rig_->Run(tokens, step, layer).ok());
      }
    }
    const OffloadStats stats = *rig_->experts->Stats();
    EXPECT_GT(stats.placement.hits, 0);
    EXPECT_EQ(stats.host->placement.lookups() + stats.host->copied_ahead, stats.placement.misses());
    EXPECT_EQ(stats.host->copied + stats.host->computed_on_cpu + stats.host->copied_ahead,
              stats.placement.misses());
  }
}

TEST_F(DeviceExpertsTest, AFailedReadNamesTheExpertAndLeavesTheOthersUsable) {
  Start({.host_slots = 9});
  rig_->puppet->set_fate([this](const RecordRead& read) {
    return read.offset == model_.records().layers[1][7].offset
               ? absl::UnavailableError("is unreadable")
               : absl::OkStatus();
  });
  for (const HostLane lane : {HostLane::kOn, HostLane::kOff}) {
    const auto failed = rig_->Use(1, {0, 6, 7, 8}, lane);
    ASSERT_FALSE(failed.ok());
    EXPECT_TRUE(absl::IsUnavailable(failed.status()));
    EXPECT_THAT(std::string(failed.status().message()),
                HasSubstr("layer 2, expert 7 is unreadable"));
    EXPECT_TRUE(rig_->Use(1, {0, 6, 8, 9}, lane).ok());
  }
  rig_->puppet->set_fate(nullptr);
  EXPECT_TRUE(rig_->Use(1, {0, 6, 7, 8}).ok());
}

TEST_F(DeviceExpertsTest, AFailedCopyNamesTheExpert) {
  for (int64_t failing = 1; failing <= 14; ++failing) {
    SCOPED_TRACE(failing);
    rig_ = std::make_unique<DeviceRig>(model_, RigOptions{.device = {.failing_copy = failing}});
    absl::Status status = rig_->experts->LoadResidents({});
    rig_->MakeCpuSlow();
    std::mt19937 random(failing);
    for (int step = 0; step < 20 && status.ok(); ++step) {
      for (int layer = 0; layer < kLayers && status.ok(); ++layer) {
        status = rig_->Run(Tokens(1, &random), step, layer).status();
      }
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    // All later calls fail too, so the error may also come from an op that needs the copy.
    const absl::Status later = rig_->experts->Change({.expert_memory_bytes = 9 * 8192});
    for (const absl::Status& error : {status, later}) {
      if (error.ok()) continue;
      EXPECT_THAT(std::string(error.message()), HasSubstr("of the device failed"));
    }
    if (failing <= 9) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("model.tidepack: layer "), HasSubstr("expert "),
                        HasSubstr("was not copied to the device: copy")));
    }
    rig_ = nullptr;
  }
}

TEST_F(DeviceExpertsTest, CreateReportsMemoryThatIsTooSmall) {
  const auto device = kernels::MakeProtectedBackend({.memory_bytes = 10 * 8192});
  const auto host = [&](kernels::KernelBackend* pin) {
    return TieredExperts::Create(model_.records(),
                                 std::make_unique<PuppetReader>(&model_.bytes(), 1),
                                 {.top_k = kTopK, .slots = kAll, .pin = pin});
  };
  auto below = host(device.get());
  ASSERT_TRUE(below.ok()) << below.status();
  const auto created = DeviceExperts::Create(device.get(), *std::move(below),
                                             {.top_k = kTopK, .slots = 9, .staging = 2});
  EXPECT_EQ(created.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(created.status().message()),
              AllOf(HasSubstr("a part of the experts' memory"), HasSubstr("--expert-memory")));
  const auto small = kernels::MakeProtectedBackend({.pinned_bytes = 10 * 8192});
  EXPECT_EQ(host(small.get()).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DeviceExpertsTest, AnAbandonedRequestIsFollowedByOthers) {
  Start({.slots = kTopK, .host_slots = kTopK});
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    const int64_t failing = static_cast<int64_t>(random() % kAll);
    rig_->puppet->set_fate([failing](const RecordRead& read) {
      return read.ticket == failing ? absl::UnavailableError("is unreadable") : absl::OkStatus();
    });
    const Tokens tokens(1 + random() % 3, &random);
    const auto out = rig_->Run(tokens, i, i % kLayers);
    if (!out.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(out.status())) << out.status();
      continue;
    }
    EXPECT_EQ(*out, rig_->Expected(tokens, i % kLayers));
  }
}

}  // namespace
}  // namespace tidepool::moe
