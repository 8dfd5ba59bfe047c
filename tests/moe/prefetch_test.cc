// What expectations do to the reads of TieredExperts.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "moe/tiered_experts.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

enum class Guess : uint8_t { kNone, kRight, kWrong };

constexpr int kSteps = 200;
constexpr int64_t kSlots = 12;

// Steps of one token through all layers; the layer after is foretold as `guess` says, and its reads
// have ended before it is asked for.
OffloadStats RunWith(const Master& master, Guess guess) {
  Rig rig(master, PolicyKind::kLru, kSlots, 1);
  rig.experts->LoadResidents({});
  std::mt19937 random(3);
  std::vector<int32_t> all(kExperts);
  for (int e = 0; e < kExperts; ++e) all[e] = e;
  std::vector<int32_t> next = all;  // whose first kTopK the next layer chooses
  std::shuffle(next.begin(), next.end(), random);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::vector<int32_t> ids(next.begin(), next.begin() + kTopK);
      std::vector<int32_t> distinct = ids;
      std::sort(distinct.begin(), distinct.end());
      rig.experts->Request({.step = step, .layer = layer, .tokens = 1, .ids = ids}, distinct);
      EXPECT_TRUE(Drain(master, layer, distinct, rig.experts.get()).ok());
      next = all;
      std::shuffle(next.begin(), next.end(), random);
      if (guess == Guess::kRight) {
        rig.experts->Expect((layer + 1) % kLayers, absl::MakeConstSpan(next).first(kTopK));
      } else if (guess == Guess::kWrong) {
        rig.experts->Expect((layer + 1) % kLayers, absl::MakeConstSpan(next).subspan(kTopK));
      }
      rig.puppet->WaitIdle();
    }
  }
  return *rig.experts->Stats();
}

TEST(PrefetchTest, RightGuessesAreReadAheadInsteadOfOnDemand) {
  const Master master;
  const OffloadStats without = RunWith(master, Guess::kNone);
  const OffloadStats with = RunWith(master, Guess::kRight);
  EXPECT_EQ(without.prefetch_bytes, 0);
  EXPECT_GT(without.demand_bytes, 0);
  // Half of the three staging records, which is one, before each layer that misses something.
  const int64_t record = master.records().largest_bytes();
  EXPECT_GT(with.prefetch_used_bytes, kSteps * kLayers / 2 * record);
  EXPECT_EQ(with.prefetch_wasted_bytes, 0);
  EXPECT_EQ(with.demand_bytes + with.prefetch_used_bytes, without.demand_bytes);
  EXPECT_TRUE(with.placement == without.placement);
}

// At 8 % of what is read.
TEST(PrefetchTest, WrongGuessesEndReadingAhead) {
  const Master master;
  const OffloadStats without = RunWith(master, Guess::kNone);
  const OffloadStats with = RunWith(master, Guess::kWrong);
  const int64_t record = master.records().largest_bytes();
  EXPECT_GT(with.prefetch_wasted_bytes, 10 * record);
  // One is on its way when the limit is reached.
  EXPECT_LE((with.prefetch_wasted_bytes - record) * 100,
            (with.demand_bytes + with.prefetch_bytes) * 8);
  EXPECT_EQ(with.prefetch_used_bytes, 0);
  EXPECT_EQ(with.demand_bytes, without.demand_bytes);
}

TEST(PrefetchTest, NothingIsExpectedWhereItIsOfNoUse) {
  const Master master;
  Rig all(master, PolicyKind::kLru, kAll, 1);
  EXPECT_TRUE(all.experts->WantsExpectations());
  all.experts->LoadResidents({});
  EXPECT_FALSE(all.experts->WantsExpectations());
  all.experts->Expect(0, {1, 2});
  EXPECT_EQ(all.experts->Stats()->prefetch_bytes, 0);
  Rig off(master, PolicyKind::kLru, kSlots, 1, Prefetch::kOff);
  EXPECT_FALSE(off.experts->WantsExpectations());
  // As long as too much was wasted.
  Rig some(master, PolicyKind::kLru, kSlots, 1);
  some.experts->LoadResidents({});
  EXPECT_TRUE(some.experts->WantsExpectations());
  const ExpertMap map = some.experts->Map();
  const auto absent =
      static_cast<int32_t>(std::find(map.resident.begin(), map.resident.begin() + kExperts, false) -
                           map.resident.begin());
  ASSERT_LT(absent, kExperts);
  some.experts->Expect(0, {absent});
  some.puppet->WaitIdle();
  std::vector<int32_t> others;
  for (int32_t e = 0; static_cast<int>(others.size()) < kTopK; ++e) {
    if (e != absent) others.push_back(e);
  }
  some.experts->Request({.step = 0, .layer = 0, .tokens = 1, .ids = others}, others);
  EXPECT_TRUE(Drain(master, 0, others, some.experts.get()).ok());
  EXPECT_GT(some.experts->Stats()->prefetch_wasted_bytes, 0);
  EXPECT_FALSE(some.experts->WantsExpectations());
}

}  // namespace
}  // namespace tidepool::moe
