// The adaptive policy over kinds of routing, beside those that it has to beat.
#include "tests/moe/replay/trace_kinds.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "moe/policy/placement.h"
#include "moe/replay/replay.h"

namespace tidepool::moe {
namespace {

TEST(TraceKindsTest, TracesAreWholeAndFollowFromTheirSeeds) {
  std::set<std::string> names;
  for (TraceKind kind : TraceKinds()) {
    kind.forwards = 20;
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name << " stands twice";
    const Trace trace = MakeTrace(kind, 3);
    ASSERT_TRUE(trace.header.Validate().ok()) << kind.name;
    ASSERT_EQ(trace.entries.size(), static_cast<size_t>(20 * kind.layers)) << kind.name;
    for (const TraceEntry& entry : trace.entries) {
      ASSERT_FALSE(entry.ids.empty()) << kind.name;
      for (size_t token = 0; token < entry.ids.size(); token += kind.top_k) {
        const std::set<int32_t> row(&entry.ids[token], &entry.ids[token] + kind.top_k);
        ASSERT_EQ(row.size(), static_cast<size_t>(kind.top_k)) << kind.name;
        ASSERT_TRUE(*row.begin() >= 0 && *row.rbegin() < kind.experts) << kind.name;
      }
    }
    EXPECT_EQ(MakeTrace(kind, 3).entries.back().ids, trace.entries.back().ids);
    EXPECT_NE(MakeTrace(kind, 4).entries.back().ids, trace.entries.back().ids) << kind.name;
  }
}

double HitRate(const Trace& trace, int64_t slots, const ReplayPolicy& policy) {
  auto placement = MakePlacement(trace, slots, policy);
  EXPECT_TRUE(placement.ok()) << placement.status();
  const PlacementCounters counters = Replay(trace, {}, placement->get()).counters;
  return static_cast<double>(counters.hits) / static_cast<double>(counters.lookups());
}

class AdaptiveOver : public ::testing::TestWithParam<std::string> {};

// Seeds are others than those that docs/offload.md speaks of.
TEST_P(AdaptiveOver, IsNotFarBelowTheBestOfTheOthers) {
  const auto kind = std::find_if(TraceKinds().begin(), TraceKinds().end(),
                                 [](const TraceKind& k) { return k.name == GetParam(); });
  ASSERT_NE(kind, TraceKinds().end());
  const Trace trace = MakeTrace(*kind, 101);
  for (const int share : {4, 2}) {
    const int64_t slots = trace.header.all_experts() / share;
    double best = HitRate(trace, slots, {"lru", {}});
    for (const int64_t interval : {1, 4, 10, 32}) {
      best = std::max(best, HitRate(trace, slots, {"tide", {.refresh_interval = interval}}));
    }
    EXPECT_GT(HitRate(trace, slots, {"adaptive", {}}), 0.97 * best) << "1 / " << share;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdaptiveOver,
                         ::testing::Values("story", "turns", "denoise", "cycle", "scan", "shifts",
                                           "verify", "round", "sweep", "trio"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tidepool::moe
