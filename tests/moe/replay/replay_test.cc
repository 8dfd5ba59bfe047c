// Tests the simulator: counts and cost model against values computed by hand, and the oracle
// against every possible schedule.
#include "moe/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/moe/replay/made_traces.h"

namespace tidepool::moe {
namespace {

ReplayResult RunOn(const Trace& trace, int64_t slots, const ReplayPolicy& policy) {
  auto placement = MakePlacement(trace, slots, policy);
  CHECK_OK(placement.status());
  return Replay(trace, {}, placement->get());
}

Trace Empty(int layers, int experts, int top_k) {
  return MakeTrace({.layers = layers, .experts = experts, .top_k = top_k, .forwards = 0});
}

TEST(ReplayTest, CountsMatchValuesComputedByHand) {
  Trace trace = Empty(2, 4, 2);
  trace.header.expert_bytes = {10, 20};
  trace.entries = {{.step = 0, .layer = 0, .ids = {0, 1}},
                   {.step = 0, .layer = 1, .ids = {2, 0}},
                   {.step = 1, .layer = 0, .ids = {1, 2, 3, 2}},
                   {.step = 1, .layer = 1, .ids = {2, 3}}};
  // Each layer has two slots. The second forward refreshes nothing, because a refresh comes every 2
  // steps.
  const ReplayResult tide = RunOn(trace, 4, {"tide", {.refresh_interval = 2}});
  EXPECT_EQ(tide.policy, "tide");
  EXPECT_EQ(tide.slots, 4);
  EXPECT_EQ(tide.forwards, 2);
  EXPECT_EQ(tide.counters,
            (PlacementCounters{.hits = 5, .promotions = 1, .pass_throughs = 3, .evictions = 1}));
  EXPECT_EQ(tide.bytes_moved, 20 + 2 * 10 + 20);
}

TEST(ReplayTest, TimeFollowsTheCostModel) {
  Trace trace = Empty(1, 4, 3);
  trace.header.expert_bytes = {1000};
  trace.entries = {{.step = 0, .layer = 0, .ids = {0, 1, 2}},
                   {.step = 1, .layer = 0, .ids = {1, 2, 3}}};
  auto placement = MakePlacement(trace, 1, {"static", {}});
  ASSERT_TRUE(placement.ok()) << placement.status();
  // An expert takes 1 ms to run and 4 ms to read. In forward 0, expert 0 runs while expert 1 is
  // read. Expert 1 is read at 4 ms, and expert 2 at 8 ms; it has run at 9 ms. Forward 1 takes three
  // reads and then 1 ms: 13 ms.
  const ReplayResult result =
      Replay(trace, {.read_bytes_per_s = 250e3, .memory_bytes_per_s = 1e6}, placement->get());
  EXPECT_DOUBLE_EQ(result.step_ms, (9.0 + 13.0) / 2);
}

TEST(ReplayTest, RejectsInvalidArguments) {
  const Trace trace = Empty(2, 4, 2);
  EXPECT_EQ(MakePlacement(trace, 9, {"lru", {}}).status().message(),
            "the number of slots is 9; it must be 1 to 8 for 2 layers of 4 experts");
  EXPECT_TRUE(absl::StrContains(MakePlacement(trace, 4, {"mru", {}}).status().message(),
                                "unknown offload policy \"mru\""));
}

// Returns the largest number of hits that any sequence of resident sets can have. After each entry,
// the set has at most `slots` of the experts that were resident or needed.
int64_t MostHits(const Trace& trace, int slots) {
  const auto count = static_cast<int>(trace.header.all_experts());
  std::map<uint32_t, int64_t> best;  // most hits by resident set
  for (uint32_t set = 0; set < (1u << count); ++set) {
    if (__builtin_popcount(set) == slots) best[set] = 0;
  }
  for (const TraceEntry& entry : trace.entries) {
    uint32_t needed = 0;
    for (const int32_t e : entry.ids) needed |= 1u << (entry.layer * trace.header.experts + e);
    std::map<uint32_t, int64_t> next;
    for (const auto& [set, hits] : best) {
      const int64_t now = hits + __builtin_popcount(set & needed);
      const uint32_t all = set | needed;
      for (uint32_t kept = all;; kept = (kept - 1) & all) {
        if (__builtin_popcount(kept) <= slots) {
          auto& value = next.try_emplace(kept, 0).first->second;
          value = std::max(value, now);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(next);
  }
  int64_t most = 0;
  for (const auto& [set, hits] : best) most = std::max(most, hits);
  return most;
}

TEST(BeladyTest, NoScheduleHasMoreHits) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const int layers = pick(1, 2);
    const int experts = layers == 1 ? pick(4, 7) : pick(3, 4);
    const Trace trace = MakeTrace({.layers = layers,
                                   .experts = experts,
                                   .top_k = pick(1, 2),
                                   .forwards = 12 / layers,
                                   .tokens = pick(1, 2),
                                   .drift = 0.6,
                                   .skew = 0.5,
                                   .seed = seed});
    const int slots = pick(1, std::min(4, layers * experts - 1));
    EXPECT_EQ(RunOn(trace, slots, {"belady", {}}).counters.hits, MostHits(trace, slots))
        << "seed " << seed << ", " << slots << " slots";
  }
}

TEST(HindsightTest, NoFixedSetHasMoreHits) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const Trace trace = MakeTrace(
        {.layers = 2, .experts = 5, .forwards = 20, .drift = 0.5, .skew = 1, .seed = seed});
    int64_t most = 0;
    for (uint32_t set = 0; set < (1u << 10); ++set) {
      if (__builtin_popcount(set) != 4) continue;
      int64_t hits = 0;
      for (const TraceEntry& entry : trace.entries) {
        for (const int32_t e : std::set<int32_t>(entry.ids.begin(), entry.ids.end())) {
          hits += (set >> (entry.layer * 5 + e)) & 1;
        }
      }
      most = std::max(most, hits);
    }
    EXPECT_EQ(RunOn(trace, 4, {"hindsight", {}}).counters.hits, most);
  }
}

// A second implementation of TIDE's refresh, written directly from its definition: it has sets and
// no slots.
int64_t PlainTideHits(const Trace& trace, int64_t slots, int64_t tau) {
  const auto b =
      static_cast<size_t>(std::min<int64_t>(slots / trace.header.layers, trace.header.experts));
  std::vector<std::set<int32_t>> resident(trace.header.layers);
  for (auto& layer : resident) {
    for (size_t expert = 0; expert < b; ++expert) layer.insert(static_cast<int32_t>(expert));
  }
  int64_t hits = 0;
  for (const TraceEntry& entry : trace.entries) {
    std::set<int32_t>& layer = resident[entry.layer];
    std::map<int32_t, int> counts;
    for (const int32_t expert : entry.ids) ++counts[expert];
    for (const auto& [expert, count] : counts) hits += layer.contains(expert);
    if (entry.step % tau != 0) continue;
    std::set<int32_t> targets;
    while (targets.size() < b && !counts.empty()) {
      auto most = counts.begin();
      for (auto it = counts.begin(); it != counts.end(); ++it) {
        if (it->second > most->second) most = it;
      }
      targets.insert(most->first);
      counts.erase(most);
    }
    layer.insert(targets.begin(), targets.end());
    for (auto it = layer.begin(); layer.size() > b;) {
      it = targets.contains(*it) ? std::next(it) : layer.erase(it);
    }
  }
  return hits;
}

TEST(TideReplayTest, AgreesWithAReferenceImplementation) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = MakeTrace({.layers = 3,
                                   .experts = 20,
                                   .top_k = 3,
                                   .forwards = 60,
                                   .tokens = 4,
                                   .drift = 0.3,
                                   .skew = 0.7,
                                   .prefill_every = 17,
                                   .prefill_tokens = 30,
                                   .seed = seed});
    for (const int64_t slots : {2, 3, 17, 31, 60}) {
      for (const int64_t tau : {1, 2, 7}) {
        const ReplayResult tide = RunOn(trace, slots, {"tide", {.refresh_interval = tau}});
        EXPECT_EQ(tide.counters.hits, PlainTideHits(trace, slots, tau))
            << slots << " slots, tau " << tau;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::moe
