// What holds of every policy, over random routings and random commands.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/policy/placement.h"
#include "moe/replay/replay.h"
#include "tests/moe/replay/made_traces.h"

namespace tidepool::moe {
namespace {

const char* const kNames[] = {"adaptive", "tide", "lru", "static"};

// No more are resident than there are slots, and the counts agree; returns who is.
std::set<ExpertRef> CheckResidents(const Placement& placement) {
  const std::vector<ExpertRef> residents = placement.residents();
  const Residency& residency = placement.residency();
  EXPECT_LE(residency.residents(), placement.shape().slots);
  EXPECT_EQ(static_cast<int64_t>(residents.size()), residency.residents());
  for (int layer = 0; layer < placement.shape().layers; ++layer) {
    EXPECT_EQ(residency.residents_of(layer),
              std::count_if(residents.begin(), residents.end(),
                            [&](ExpertRef expert) { return expert.layer == layer; }));
  }
  return {residents.begin(), residents.end()};
}

// Budget, pins, floor and the truth of the lookups, around one Decide.
void DecideAndCheck(const LayerRouting& routing, const std::vector<ExpertRef>& pinned,
                    Placement* placement) {
  const std::set<ExpertRef> before = CheckResidents(*placement);
  std::vector<int> of_layer(placement->shape().layers, 0);
  for (const ExpertRef expert : before) ++of_layer[expert.layer];
  const std::set<int32_t> needed(routing.ids.begin(), routing.ids.end());
  std::set<ExpertRef> expected = before;
  std::set<int32_t> found;
  for (const Lookup& lookup : placement->Decide(routing)) {
    const ExpertRef ref{routing.layer, lookup.expert};
    found.insert(lookup.expert);
    EXPECT_EQ(lookup.action == LookupAction::kHit, before.contains(ref));
    if (lookup.action == LookupAction::kInsert) expected.insert(ref);
    if (lookup.victim.valid()) {
      EXPECT_EQ(expected.erase(lookup.victim), 1u);
    }
  }
  EXPECT_EQ(found, needed);
  EXPECT_EQ(CheckResidents(*placement), expected);
  for (const ExpertRef expert : pinned) EXPECT_TRUE(expected.contains(expert));
  for (int layer = 0; layer < placement->shape().layers; ++layer) {
    const int least = std::min(placement->shape().floor, of_layer[layer]);
    EXPECT_GE(placement->residency().residents_of(layer), least) << "layer " << layer;
  }
}

PolicyOptions RandomOptions(std::mt19937* random) {
  PolicyOptions options;
  const auto name = kNames[(*random)() % std::size(kNames)];
  options.kind = ParsePolicyKind(name).value();
  options.refresh_interval = 1 + (*random)() % 4;
  return options;
}

class EveryPolicy : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryPolicy, KeepsBudgetPinsAndFloor) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const Trace trace = MakeTrace({.layers = 3,
                                   .experts = 12,
                                   .top_k = 3,
                                   .forwards = 60,
                                   .tokens = 2,
                                   .drift = 0.4,
                                   .skew = 0.6,
                                   .prefill_every = 11,
                                   .prefill_tokens = 9,
                                   .seed = seed});
    const PoolShape shape{.layers = 3,
                          .experts = 12,
                          .top_k = 3,
                          .slots = 7 + static_cast<int>(random() % 20),
                          .floor = static_cast<int>(random() % 3)};
    auto made = Placement::Create(shape, {.kind = ParsePolicyKind(GetParam()).value()});
    ASSERT_TRUE(made.ok()) << made.status();
    Placement* placement = made->get();
    std::vector<ExpertRef> pinned;
    for (const TraceEntry& entry : trace.entries) {
      const auto residents = placement->residents();
      const uint32_t dice = random() % 16;
      if (dice == 0 && !residents.empty() && pinned.size() < 4) {
        pinned.push_back(residents[random() % residents.size()]);
        placement->Pin(pinned.back());
      } else if (dice <= 2 && !pinned.empty()) {
        placement->Unpin(pinned.back());
        pinned.pop_back();
      } else if (dice == 3 && !residents.empty()) {
        const ExpertRef lost = residents[random() % residents.size()];
        if (!placement->residency().IsPinned(lost)) placement->Forget(lost);
      } else if (dice == 4) {
        const int64_t slots = 7 + random() % 29;
        const auto change = placement->Resize(slots);
        ASSERT_TRUE(change.ok()) << change.status();
        EXPECT_EQ(placement->shape().slots, slots);
      } else if (dice == 5) {
        placement->RefreshSoon();
      } else if (dice == 6 && random() % 4 == 0) {
        ASSERT_TRUE(placement->SetPolicy(RandomOptions(&random)).ok());
      }
      DecideAndCheck(entry.routing(trace.header.top_k), pinned, placement);
    }
  }
}

TEST_P(EveryPolicy, CountsEveryLookupOnce) {
  const Trace trace = MakeTrace({.forwards = 80, .tokens = 3, .drift = 0.3, .skew = 0.5});
  int64_t lookups = 0;
  for (const TraceEntry& entry : trace.entries) {
    lookups += static_cast<int64_t>(std::set<int32_t>(entry.ids.begin(), entry.ids.end()).size());
  }
  auto placement = MakePlacement(trace, 20, {GetParam(), {}});
  ASSERT_TRUE(placement.ok()) << placement.status();
  const ReplayResult result = Replay(trace, {}, placement->get());
  EXPECT_EQ(result.counters.lookups(), lookups);
  EXPECT_EQ(result.bytes_moved, result.counters.misses() << 20);
}

TEST_P(EveryPolicy, DecidesTheSameAgain) {
  const Trace trace = MakeTrace({.forwards = 120, .tokens = 2, .drift = 0.3, .skew = 0.5});
  std::vector<PlacementCounters> counters;
  for (int run = 0; run < 2; ++run) {
    auto placement = MakePlacement(trace, 20, {GetParam(), {}});
    ASSERT_TRUE(placement.ok()) << placement.status();
    counters.push_back(Replay(trace, {}, placement->get()).counters);
  }
  EXPECT_EQ(counters[0], counters[1]);
}

TEST_P(EveryPolicy, IsNoBetterThanTheOracle) {
  for (const int period : {0, 6}) {
    const Trace trace =
        MakeTrace({.forwards = 120, .drift = 0.3, .skew = 0.5, .period = period, .seed = 3});
    auto oracle = MakePlacement(trace, 20, {"belady", {}});
    auto placement = MakePlacement(trace, 20, {GetParam(), {}});
    ASSERT_TRUE(oracle.ok() && placement.ok());
    const int64_t most = Replay(trace, {}, oracle->get()).counters.hits;
    EXPECT_LE(Replay(trace, {}, placement->get()).counters.hits, most);
  }
}

// Bounds the misses of the last forward of the trace by what is not resident when it begins.
void CheckLastPass(const Trace& trace, int64_t slots, const char* policy) {
  const auto placement = MakePlacement(trace, slots, {policy, {}});
  ASSERT_TRUE(placement.ok()) << placement.status();
  const int64_t last = trace.entries.back().step;
  PlacementCounters before;
  int64_t absent = 0;
  for (const TraceEntry& entry : trace.entries) {
    if (entry.step == last && entry.layer == 0) {
      before = (*placement)->Total();
      absent = trace.header.all_experts() - (*placement)->residency().residents();
    }
    (*placement)->Decide(entry.routing(trace.header.top_k));
  }
  const PlacementCounters after = (*placement)->Total();
  const int64_t misses = after.misses() - before.misses();
  if (after.lookups() - before.lookups() == trace.header.all_experts()) {
    EXPECT_EQ(misses, absent);
  }
  EXPECT_LE(misses * 100, absent * 105);
}

// A prompt reads what was not resident when it came, once: no layer takes from those to come what
// they are about to need. It holds of lru from a cold start alone, for lru goes by the last
// forward.
TEST_P(EveryPolicy, APassMissesOnlyWhatWasNotThere) {
  const std::string policy = GetParam();
  for (const int layers : {2, 12}) {
    for (const int before : {0, 1, 30}) {  // forwards, of which the first is a prompt
      if (policy == "lru" && before > 0) continue;
      for (const int tokens : {100, 2048}) {
        for (const double skew : {0.0, 1.0}) {
          const Trace trace = MakeTrace({.layers = layers,
                                         .experts = 48,
                                         .top_k = 6,
                                         .forwards = before + 1,
                                         .skew = skew,
                                         .prefill_every = std::max(before, 1),
                                         .prefill_tokens = tokens});
          for (const int percent : {10, 25, 50, 80}) {
            SCOPED_TRACE(absl::StrCat(layers, " layers, ", before, " forwards before, ", tokens,
                                      " tokens, skew ", skew, ", ", percent, " %"));
            CheckLastPass(trace, trace.header.all_experts() * percent / 100, GetParam());
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(kNames),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace tidepool::moe
