#include "moe/tiered_experts.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::HasSubstr;

constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                    PolicyKind::kStatic};

TEST(TieredExpertsTest, BytesAreRightForAnyBudgetPolicyAndOrder) {
  const Master master;
  for (const PolicyKind policy : kPolicies) {
    for (const int64_t slots : {int64_t{kTopK}, int64_t{7}, kAll / 2, kAll}) {
      for (const Prefetch prefetch : {Prefetch::kOn, Prefetch::kOff}) {
        SCOPED_TRACE(absl::StrCat(PolicyName(policy), " ", slots));
        Rig rig(master, policy, slots, static_cast<int>(slots), prefetch);
        rig.experts->LoadResidents({});
        Routings routings(11);
        for (int step = 0; step < 40; ++step) {
          for (int layer = 0; layer < kLayers; ++layer) {
            const LayerRouting routing = routings.Next(step, layer);
            rig.experts->Request(routing, routings.Distinct());
            if (layer + 1 < kLayers) rig.experts->PrefetchHint(layer + 1, routings.Guess());
            const absl::Status drained =
                Drain(master, layer, routings.Distinct(), rig.experts.get());
            ASSERT_TRUE(drained.ok()) << drained;
          }
        }
        const OffloadStats stats = *rig.experts->Stats();
        EXPECT_EQ(stats.failed_reads, 0);
        if (slots == kAll) {
          EXPECT_EQ(stats.demand_bytes + stats.prefetch_bytes, 0);
        }
        if (prefetch == Prefetch::kOff) {
          EXPECT_EQ(stats.prefetch_bytes, 0);
        }
      }
    }
  }
}

std::vector<int32_t> Numbers(const std::vector<ReadyExpert>& wave) {
  std::vector<int32_t> numbers;
  for (const ReadyExpert& ready : wave) numbers.push_back(ready.expert);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// A layer starts with the experts in memory, and gets each other expert as soon as it has arrived,
// even while other reads are in flight.
TEST(TieredExpertsTest, ReadyExpertsDoNotWaitForOtherReads) {
  const Master master;
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  for (const PolicyKind policy : kPolicies) {
    SCOPED_TRACE(PolicyName(policy));
    Rig rig(master, policy, kAll / 2, 1);
    rig.experts->LoadResidents({});
    for (int layer = 0; layer < kLayers; ++layer) {
      const ExpertMap map = rig.experts->Map();
      std::vector<int32_t> there, missing;
      for (const int32_t e : all) {
        (map.resident[layer * kExperts + e] ? there : missing).push_back(e);
      }
      rig.puppet->set_held([](const RecordRead&) { return true; });
      rig.experts->Request({.layer = layer, .tokens = kExperts / kTopK, .ids = all}, all);
      if (!there.empty()) {
        const auto first = rig.experts->NextReady(Patience::kUntilOne);
        ASSERT_TRUE(first.ok());
        EXPECT_EQ(Numbers(*first), there);
        for (const ReadyExpert& ready : *first) {
          EXPECT_EQ(ready.found, Found::kResident);
          rig.experts->Release(ready.expert);
        }
      }
      EXPECT_TRUE(rig.experts->NextReady(Patience::kNone)->empty());
      for (const int32_t expert : missing) {
        rig.puppet->set_held([ticket = layer * kExperts + expert](const RecordRead& read) {
          return read.ticket != ticket;
        });
        const auto wave = rig.experts->NextReady(Patience::kUntilOne);
        ASSERT_TRUE(wave.ok());
        ASSERT_EQ(Numbers(*wave), std::vector<int32_t>{expert});
        EXPECT_TRUE(master.Matches(layer, wave->front()));
        rig.experts->Release(expert);
      }
      EXPECT_TRUE(rig.experts->NextReady(Patience::kUntilOne)->empty());
    }
    const PlacementCounters counted = rig.experts->Stats()->placement;
    EXPECT_GT(counted.hits, 0);
    EXPECT_GT(counted.misses(), 0);
  }
}

// With or without prefetch, hits and misses are counted like by a Placement alone.
TEST(TieredExpertsTest, CountsLikeAPlacement) {
  const Master master;
  for (const PolicyKind policy : kPolicies) {
    for (const Prefetch prefetch : {Prefetch::kOn, Prefetch::kOff}) {
      constexpr int64_t kSlots = 14;
      Rig rig(master, policy, kSlots, 3, prefetch);
      rig.experts->LoadResidents({});
      auto alone = Placement::Create(
          {.layers = kLayers, .experts = kExperts, .top_k = kTopK, .slots = kSlots},
          {.kind = policy, .refresh_interval = 3});
      ASSERT_TRUE(alone.ok());
      Routings routings(2);
      int64_t hits = 0;
      int64_t misses = 0;
      for (int step = 0; step < 30; ++step) {
        for (int layer = 0; layer < kLayers; ++layer) {
          const LayerRouting routing = routings.Next(step, layer);
          rig.experts->Request(routing, routings.Distinct());
          (*alone)->Decide(routing);
          rig.experts->PrefetchHint((layer + 1) % kLayers, routings.Guess());
          while (true) {
            const auto wave = rig.experts->NextReady(Patience::kUntilOne);
            ASSERT_TRUE(wave.ok());
            if (wave->empty()) break;
            for (const ReadyExpert& ready : *wave) {
              ++(ready.found == Found::kResident ? hits : misses);
              rig.experts->Release(ready.expert);
            }
          }
        }
      }
      const OffloadStats stats = *rig.experts->Stats();
      EXPECT_TRUE(stats.placement == (*alone)->Total());
      EXPECT_EQ(stats.placement.hits, hits);
      EXPECT_EQ(stats.placement.misses(), misses);
      if (prefetch == Prefetch::kOff) {
        EXPECT_EQ(stats.demand_reads, misses);
      } else {
        EXPECT_LE(stats.demand_reads, misses);
      }
    }
  }
}

// A prompt that needs most experts of every layer and sums them in order. Each missing expert is
// read once, except for the few that were postponed.
TEST(TieredExpertsTest, ReadsEachMissingExpertOnce) {
  const Master master;
  std::vector<int32_t> all(kExperts);
  for (int e = 0; e < kExperts; ++e) all[e] = e;
  std::vector<int32_t> ids;
  for (int t = 0; t < kExperts; ++t) {
    for (int s = 0; s < kTopK; ++s) ids.push_back((t + s) % kExperts);
  }
  for (const PolicyKind policy : kPolicies) {
    for (int seed = 0; seed < 10; ++seed) {
      Rig rig(master, policy, 6 + 3 * seed, seed);
      rig.experts->LoadResidents({});
      int64_t postponed = 0;
      for (int step = 0; step < 4; ++step) {
        for (int layer = 0; layer < kLayers; ++layer) {
          rig.experts->Request({.step = step, .layer = layer, .tokens = kExperts, .ids = ids}, all);
          const auto given_back = DrainInOrder(master, layer, all, rig.experts.get());
          ASSERT_TRUE(given_back.ok()) << given_back.status();
          postponed += *given_back;
        }
      }
      const OffloadStats stats = *rig.experts->Stats();
      EXPECT_EQ(stats.placement.lookups(), 4 * kAll);
      EXPECT_EQ(stats.demand_reads, stats.placement.misses() + postponed);
      EXPECT_LE(postponed * 4, stats.placement.misses()) << "policy " << static_cast<int>(policy);
    }
  }
}

// A damaged or unreadable record fails the layer that needs it, with an error that names the
// expert. Other layers continue, and this one works again once the record is readable.
TEST(TieredExpertsTest, FailedReadsNameTheExpertAndRecover) {
  const Master master;
  const int64_t record_bytes = master.records().largest_bytes();
  for (const bool damaged : {true, false}) {
    for (int seed = 0; seed < 8; ++seed) {
      Rig rig(master, PolicyKind::kLru, 9, seed);
      const auto bad = static_cast<int64_t>(kExperts * 2 + 6);  // expert 6 of the third MoE layer
      rig.puppet->set_fate([&](const RecordRead& read) {
        if (read.offset != bad * record_bytes) return absl::OkStatus();
        if (!damaged) return absl::UnavailableError("cannot be read: I/O error");
        read.into[100] ^= std::byte{1};
        return absl::OkStatus();
      });
      rig.experts->LoadResidents({});
      Routings routings(seed);
      int failures = 0;
      for (int step = 0; step < 60; ++step) {
        if (step == 40) rig.puppet->set_fate(nullptr);
        for (int layer = 0; layer < kLayers; ++layer) {
          const LayerRouting routing = routings.Next(step, layer);
          const std::vector<int32_t> wanted = routings.Distinct();
          rig.experts->Request(routing, wanted);
          rig.experts->PrefetchHint((layer + 1) % kLayers, routings.Guess());
          const absl::Status drained = Drain(master, layer, wanted, rig.experts.get());
          const bool needs_bad =
              layer == 2 && std::find(wanted.begin(), wanted.end(), 6) != wanted.end();
          if (drained.ok()) {
            EXPECT_TRUE(!needs_bad || step >= 40);
            continue;
          }
          ++failures;
          EXPECT_TRUE(needs_bad);
          EXPECT_LE(step, 40);  // a read that was in flight may still arrive damaged
          EXPECT_EQ(drained.code(),
                    damaged ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable);
          EXPECT_THAT(std::string(drained.message()),
                      HasSubstr("model.tidepack: layer 5, expert 6 "));
        }
      }
      EXPECT_GT(failures, 0);
    }
  }
}

// TieredExperts may be destroyed in the middle of a layer. Then no read writes to freed memory.
TEST(TieredExpertsTest, CanBeDestroyedWithReadsInFlight) {
  const Master master;
  for (int seed = 0; seed < 10; ++seed) {
    Rig rig(master, PolicyKind::kLru, kTopK, seed);
    Routings routings(seed);
    const LayerRouting routing = routings.Next(0, 0);
    rig.experts->Request(routing, routings.Distinct());
    rig.experts->PrefetchHint(1, {0, 1, 2, 3});
    EXPECT_TRUE(rig.experts->NextReady(Patience::kUntilOne).ok());
  }
}

}  // namespace
}  // namespace tidepool::moe
