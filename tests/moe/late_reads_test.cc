// Reads that do not end, or end too late.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "moe/tiered_experts.h"
#include "tests/moe/hang_clock.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

struct HangRig {
  HangRig(const Master& master, PolicyKind policy, int64_t slots, int seed = 1,
          absl::Duration tick = kPatience / 20)
      : clock(tick),
        rig(master,
            {.slots = slots,
             .policy = {.kind = policy, .refresh_interval = 3},
             .read_patience = kPatience,
             .clock = &clock},
            seed),
        puppet(rig.puppet),
        experts(rig.experts.get()) {
    clock.Watch(puppet);
  }
  ~HangRig() { clock.Watch(nullptr); }

  void HoldAll() const {
    puppet->set_held([](const RecordRead&) { return true; });
  }
  void HoldNone() const {
    puppet->set_held(nullptr);
    puppet->WaitIdle();
  }
  absl::Duration StallTime() const { return experts->Stats()->stall_time; }

  HangClock clock;
  Rig rig;
  PuppetReader* const puppet;
  TieredExperts* const experts;
};

absl::Status Ask(const Master& master, int layer, const std::vector<int32_t>& ids,
                 TieredExperts* experts) {
  experts->Request({.layer = layer, .tokens = 1, .ids = ids}, ids);
  return Drain(master, layer, ids, experts);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(LateReadsTest, OnlyRequestsForTheStuckExpertFail) {
  const Master master;
  HangRig rig(master, PolicyKind::kLru, 12);
  constexpr int64_t kHung = kExperts + 5;  // expert 5 of the second MoE layer
  rig.puppet->set_held([](const RecordRead& read) { return read.ticket == kHung; });
  const absl::Status first = Ask(master, 1, {4, 5, 6, 7}, rig.experts);
  EXPECT_TRUE(absl::IsUnavailable(first)) << first;
  EXPECT_THAT(
      Message(first),
      HasSubstr("model.tidepack: layer 2, expert 5 has not been read for 30s; check the disk"));
  EXPECT_GE(rig.StallTime(), kPatience);
  EXPECT_LT(rig.StallTime(), 2 * kPatience);

  // Later requests for it fail at once, without another read.
  const absl::Duration stalled = rig.StallTime();
  const int64_t reads = rig.puppet->reads();
  for (int again = 0; again < 5; ++again) {
    const absl::Status status = Ask(master, 1, {4, 5, 6, 7}, rig.experts);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("layer 2, expert 5 has not been read for 30s"));
  }
  EXPECT_EQ(rig.StallTime(), stalled);
  EXPECT_EQ(rig.puppet->reads(), reads);
  EXPECT_EQ(rig.puppet->held(), 1);

  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(Ask(master, layer, {4, 6, 7, 8}, rig.experts).ok());
    EXPECT_TRUE(Ask(master, layer, {0, 1, 2, 3}, rig.experts).ok());
  }
  rig.HoldNone();
  EXPECT_TRUE(Ask(master, 1, {4, 5, 6, 7}, rig.experts).ok());
  EXPECT_EQ(rig.experts->Stats()->failed_reads, 0);
}

// A failed request evicts no residents, so other requests can be served.
TEST(LateReadsTest, AFailedRequestEvictsNoExpert) {
  const Master master;
  HangRig rig(master, PolicyKind::kLru, 12);
  constexpr int64_t kHung = kExperts + 5;
  rig.puppet->set_held([](const RecordRead& read) { return read.ticket == kHung; });
  EXPECT_TRUE(absl::IsUnavailable(Ask(master, 1, {4, 5, 6, 7}, rig.experts)));
  for (int layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(Ask(master, layer, {0, 1, 2, 3}, rig.experts).ok());
  }
  const int64_t reads = rig.puppet->reads();
  // Each of these requests would evict three other experts.
  for (int32_t first = 8; first + 3 < kExperts; ++first) {
    EXPECT_TRUE(absl::IsUnavailable(Ask(master, 1, {5, first, first + 1, first + 2}, rig.experts)));
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(Ask(master, layer, {0, 1, 2, 3}, rig.experts).ok());
  }
  EXPECT_EQ(rig.puppet->reads(), reads);
  rig.HoldNone();
}

// Requests for other experts do not all wait the full time. If no buffer is left, they do not wait
// at all.
TEST(LateReadsTest, LaterRequestsWaitATenthOfThePatience) {
  const Master master;
  HangRig rig(master, PolicyKind::kLru, kTopK);
  rig.HoldAll();
  int without_memory = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int32_t first = 0; first < kExperts; first += kTopK) {
      std::vector<int32_t> ids(kTopK);
      std::iota(ids.begin(), ids.end(), first);
      const absl::Duration before = rig.StallTime();
      const absl::Status status = Ask(master, layer, ids, rig.experts);
      const absl::Duration waited = rig.StallTime() - before;
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(Message(status), HasSubstr(absl::StrCat("layer ", layer == 2 ? 5 : layer + 1,
                                                          ", expert ", first)));
      if (layer == 0 && first == 0) {
        EXPECT_GE(waited, kPatience);
      } else {
        EXPECT_LE(waited, kPatience / 5);
      }
      without_memory += absl::StrContains(status.message(), "hold all buffers") ? 1 : 0;
      const OffloadStats stats = *rig.experts->Stats();
      EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
    }
  }
  EXPECT_GT(without_memory, 0);
  rig.HoldNone();
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const std::vector<int32_t>& ids : {std::vector<int32_t>{0, 1, 2, 3}, {8, 9, 10, 11}}) {
      const absl::Status status = Ask(master, layer, ids, rig.experts);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // After a read has ended, the full patience applies again.
  rig.HoldAll();
  const absl::Duration before = rig.StallTime();
  EXPECT_FALSE(Ask(master, 1, {4, 5, 6, 7}, rig.experts).ok());
  EXPECT_GE(rig.StallTime() - before, kPatience);
}

TEST(LateReadsTest, LoadResidentsSkipsStuckReads) {
  const Master master;
  for (const bool all : {false, true}) {
    HangRig rig(master, PolicyKind::kLru, kAll);
    rig.puppet->set_held([=](const RecordRead& read) { return all || read.ticket == 2; });
    rig.experts->LoadResidents({});
    const ExpertMap map = rig.experts->Map();
    EXPECT_EQ(std::count(map.resident.begin(), map.resident.end(), true), all ? 0 : kAll - 1);
    EXPECT_TRUE(absl::IsUnavailable(Ask(master, 0, {1, 2, 3, 4}, rig.experts)));
    EXPECT_EQ(Ask(master, 0, {3, 4, 5, 6}, rig.experts).ok(), !all);
    rig.HoldNone();
    for (int layer = 0; layer < kLayers; ++layer) {
      const absl::Status status = Ask(master, layer, {1, 2, 3, 4}, rig.experts);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// Any read may hang at any time. Requests get the right bytes, or an error that names an expert.
// When the disk works again, all succeed.
TEST(LateReadsTest, RandomStuckReadsFailOnlyTheirRequests) {
  const Master master;
  constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                      PolicyKind::kStatic};
  int failed = 0;
  int served = 0;
  for (int seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    HangRig rig(master, kPolicies[seed % 4], kTopK + random() % 16, seed, kPatience);
    rig.experts->LoadResidents({});
    Routings routings(seed);
    bool well = true;
    for (int step = 0; step < 40; ++step) {
      if (step % 8 == 3) {
        const uint64_t mask = random() | (uint64_t{random()} << 32);
        rig.puppet->set_held(
            [=](const RecordRead& read) { return (mask >> read.ticket) % 2 != 0; });
        well = false;
      } else if (step % 8 == 7) {
        rig.HoldNone();
        well = true;
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        const LayerRouting routing = routings.Next(step, layer);
        const std::vector<int32_t> wanted = routings.Distinct();
        rig.experts->Request(routing, wanted);
        if (layer + 1 < kLayers) rig.experts->PrefetchHint(layer + 1, routings.Guess());
        const absl::Status status = random() % 2 == 0
                                        ? Drain(master, layer, wanted, rig.experts)
                                        : DrainInOrder(master, layer, wanted, rig.experts).status();
        ++(status.ok() ? served : failed);
        if (status.ok()) continue;
        EXPECT_FALSE(well) << status;
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_THAT(Message(status), AnyOf(HasSubstr("has not been read for"),
                                           HasSubstr("stuck reads hold all buffers")));
      }
    }
    EXPECT_EQ(rig.experts->Stats()->failed_reads, 0);
  }
  EXPECT_GT(failed, 20);
  EXPECT_GT(served, 200);
}

}  // namespace
}  // namespace tidepool::moe
