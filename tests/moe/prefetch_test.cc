// The effect of prefetch hints on the reads of TieredExperts.
#include <algorithm>
#include <cstdint>
#include <numeric>
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

// Runs steps of one token through all layers. The next layer gets hints according to `guess`, and
// their reads end before the layer requests its experts.
class Runner {
 public:
  explicit Runner(const Master& master)
      : master_(master), rig_(master, PolicyKind::kLru, kSlots, 1) {
    rig_.experts->LoadResidents({});
    std::iota(next_.begin(), next_.end(), 0);
    std::shuffle(next_.begin(), next_.end(), random_);
  }

  // Totals since the start.
  OffloadStats Run(int steps, Guess guess) {
    for (int step = 0; step < steps; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) RunLayer(layer, guess);
    }
    return *rig_.experts->Stats();
  }

 private:
  void RunLayer(int layer, Guess guess) {
    const std::vector<int32_t> ids(next_.begin(), next_.begin() + kTopK);
    std::vector<int32_t> distinct = ids;
    std::sort(distinct.begin(), distinct.end());
    rig_.experts->Request({.step = step_++ / kLayers, .layer = layer, .tokens = 1, .ids = ids},
                          distinct);
    EXPECT_TRUE(Drain(master_, layer, distinct, rig_.experts.get()).ok());
    std::shuffle(next_.begin(), next_.end(), random_);
    if (guess == Guess::kRight) {
      rig_.experts->PrefetchHint((layer + 1) % kLayers, absl::MakeConstSpan(next_).first(kTopK));
    } else if (guess == Guess::kWrong) {
      rig_.experts->PrefetchHint((layer + 1) % kLayers, absl::MakeConstSpan(next_).subspan(kTopK));
    }
    rig_.puppet->WaitIdle();
  }

  const Master& master_;
  Rig rig_;
  std::mt19937 random_{3};
  std::vector<int32_t> next_ =
      std::vector<int32_t>(kExperts);  // the next layer needs the first few
  int64_t step_ = 0;                   // layers so far
};

OffloadStats RunWith(const Master& master, Guess guess) {
  return Runner(master).Run(kSteps, guess);
}

TEST(PrefetchTest, RightHintsReplaceReadsOnDemand) {
  const Master master;
  const OffloadStats without = RunWith(master, Guess::kNone);
  const OffloadStats with = RunWith(master, Guess::kRight);
  EXPECT_EQ(without.prefetch_bytes, 0);
  EXPECT_GT(without.demand_bytes, 0);
  // Half of the three staging records, rounded down to one, before each layer with misses.
  const int64_t record = master.records().largest_bytes();
  EXPECT_GT(with.prefetch_used_bytes, kSteps * kLayers / 2 * record);
  EXPECT_EQ(with.prefetch_wasted_bytes, 0);
  EXPECT_EQ(with.demand_bytes + with.prefetch_used_bytes, without.demand_bytes);
  EXPECT_TRUE(with.placement == without.placement);
}

// Prefetch stops when 8 % of the read bytes are wasted.
TEST(PrefetchTest, WrongHintsPausePrefetch) {
  const Master master;
  const OffloadStats without = RunWith(master, Guess::kNone);
  const OffloadStats with = RunWith(master, Guess::kWrong);
  const int64_t record = master.records().largest_bytes();
  EXPECT_GT(with.prefetch_wasted_bytes, 10 * record);
  // One prefetched record is in flight when the limit is reached.
  EXPECT_LE((with.prefetch_wasted_bytes - record) * 100,
            (with.demand_bytes + with.prefetch_bytes) * 8);
  EXPECT_EQ(with.prefetch_used_bytes, 0);
  EXPECT_EQ(with.demand_bytes, without.demand_bytes);
}

// Many right hints in the past do not allow many wrong ones later.
TEST(PrefetchTest, HintsThatBecomeWrongPausePrefetch) {
  const Master master;
  Runner runner(master);
  const OffloadStats good = runner.Run(4000, Guess::kRight);
  EXPECT_EQ(good.prefetch_wasted_bytes, 0);
  const OffloadStats bad = Difference(runner.Run(2500, Guess::kWrong), good);
  EXPECT_GT(bad.prefetch_wasted_bytes, 0);
  EXPECT_LE(bad.prefetch_wasted_bytes * 10, bad.demand_bytes + bad.prefetch_bytes);
  // Prefetch restarts when the old waste no longer counts.
  const OffloadStats before = runner.Run(0, Guess::kNone);
  const OffloadStats again = Difference(runner.Run(kSteps, Guess::kRight), before);
  EXPECT_GT(again.prefetch_used_bytes, kSteps * kLayers / 2 * master.records().largest_bytes());
}

TEST(PrefetchTest, WantsNoHintsIfTheyHaveNoEffect) {
  const Master master;
  Rig all(master, PolicyKind::kLru, kAll, 1);
  EXPECT_TRUE(all.experts->WantsHints());
  all.experts->LoadResidents({});
  EXPECT_FALSE(all.experts->WantsHints());
  all.experts->PrefetchHint(0, {1, 2});
  EXPECT_EQ(all.experts->Stats()->prefetch_bytes, 0);
  Rig off(master, PolicyKind::kLru, kSlots, 1, Prefetch::kOff);
  EXPECT_FALSE(off.experts->WantsHints());
  // Prefetch is off while too many prefetched bytes were wasted.
  Rig some(master, PolicyKind::kLru, kSlots, 1);
  some.experts->LoadResidents({});
  EXPECT_TRUE(some.experts->WantsHints());
  const ExpertMap map = some.experts->Map();
  const auto absent =
      static_cast<int32_t>(std::find(map.resident.begin(), map.resident.begin() + kExperts, false) -
                           map.resident.begin());
  ASSERT_LT(absent, kExperts);
  some.experts->PrefetchHint(0, {absent});
  some.puppet->WaitIdle();
  std::vector<int32_t> others;
  for (int32_t e = 0; static_cast<int>(others.size()) < kTopK; ++e) {
    if (e != absent) others.push_back(e);
  }
  some.experts->Request({.step = 0, .layer = 0, .tokens = 1, .ids = others}, others);
  EXPECT_TRUE(Drain(master, 0, others, some.experts.get()).ok());
  EXPECT_GT(some.experts->Stats()->prefetch_wasted_bytes, 0);
  EXPECT_FALSE(some.experts->WantsHints());
}

}  // namespace
}  // namespace tidepool::moe
