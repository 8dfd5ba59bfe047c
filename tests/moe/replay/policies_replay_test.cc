// Tests invariants of every policy with random routings and random commands.
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

// Checks that no more experts are resident than there are slots, and that the counts agree. Returns
// the residents.
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

// Sends random commands to a placement and checks budget and pins after each.
class Driver {
 public:
  Driver(Placement* placement, uint32_t seed) : placement_(placement), random_(seed) {
    Check("the start");
  }

  void Decide(const LayerRouting& routing) {
    const std::set<ExpertRef> before = CheckResidents(*placement_);
    const std::set<int32_t> needed(routing.ids.begin(), routing.ids.end());
    std::set<ExpertRef> expected = before;
    std::set<int32_t> found;
    for (const Lookup& lookup : placement_->Decide(routing)) {
      const ExpertRef ref{routing.layer, lookup.expert};
      found.insert(lookup.expert);
      EXPECT_EQ(lookup.action == LookupAction::kHit, before.contains(ref));
      if (lookup.action == LookupAction::kInsert) expected.insert(ref);
      if (lookup.victim.valid()) {
        EXPECT_EQ(expected.erase(lookup.victim), 1u);
      }
    }
    EXPECT_EQ(found, needed);
    EXPECT_EQ(CheckResidents(*placement_), expected);
    Check("Decide");
  }

  void Command() {
    switch (random_() % 8) {
      case 0:
        return Pin();
      case 1:
        return Unpin();
      case 2:
        return Forget();
      case 3:
        return Resize();
      case 4:
        return SetPolicy();
      case 5:
        return placement_->RefreshSoon();
      default:
        return;
    }
  }

  int refused() const { return refused_; }  // number of sizes refused because of pins

 private:
  const PoolShape& shape() const { return placement_->shape(); }
  const Residency& residency() const { return placement_->residency(); }

  void Check(const char* action) {
    SCOPED_TRACE(absl::StrCat("after ", action, ", ", placement_->policy_name()));
    const std::set<ExpertRef> residents = CheckResidents(*placement_);
    for (const ExpertRef expert : pinned_) EXPECT_TRUE(residents.contains(expert));
  }

  // Half of the pins are in the first layer, so that layers have different numbers of pins.
  void Pin() {
    const auto residents = placement_->residents();
    if (residents.empty() || pinned_.size() >= 8) return;
    const bool first = random_() % 2 == 0;
    pinned_.push_back(first ? residents.front() : residents[random_() % residents.size()]);
    if (first && random_() % 2 == 0) {
      pinned_.back() = residents[random_() % std::max(1, residency().residents_of(0))];
    }
    placement_->Pin(pinned_.back());
  }

  void Unpin() {
    if (pinned_.empty()) return;
    placement_->Unpin(pinned_.back());
    pinned_.pop_back();
  }

  void Forget() {
    const auto residents = placement_->residents();
    if (residents.empty()) return;
    const ExpertRef lost = residents[random_() % residents.size()];
    if (residency().IsPinned(lost)) return;
    const int left = residency().residents_of(lost.layer) - 1;
    placement_->Forget(lost);
    EXPECT_EQ(residency().residents_of(lost.layer), left);
    Check("Forget");
  }

  void Resize() {
    const std::set<ExpertRef> pinned(pinned_.begin(), pinned_.end());
    const int64_t before = shape().slots;
    const int64_t slots = random_() % (shape().all_experts() + 1);
    const absl::Status status = placement_->Resize(slots).status();
    if (slots < 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    } else if (slots < static_cast<int64_t>(pinned.size())) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      ++refused_;
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(shape().slots, status.ok() ? slots : before);
    Check("Resize");
  }

  void SetPolicy() {
    PolicyOptions options;
    options.kind = ParsePolicyKind(kNames[random_() % std::size(kNames)]).value();
    options.refresh_interval = 1 + random_() % 4;
    EXPECT_TRUE(placement_->SetPolicy(options).ok());
    Check("SetPolicy");
  }

  Placement* const placement_;
  std::mt19937 random_;
  std::vector<ExpertRef> pinned_;
  int refused_ = 0;
};

class EveryPolicy : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryPolicy, KeepsBudgetAndPinsAfterEveryAction) {
  int refused = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
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
    PoolShape shape{
        .layers = 3, .experts = 12, .top_k = 3, .slots = 7 + static_cast<int>(random() % 20)};
    if (seed % 2 == 0) shape.miss_cost = {0.25f, 1.5f, 1.25f};
    auto made = Placement::Create(shape, {.kind = ParsePolicyKind(GetParam()).value()});
    ASSERT_TRUE(made.ok()) << made.status();
    Driver driver(made->get(), seed);
    for (const TraceEntry& entry : trace.entries) {
      driver.Command();
      driver.Decide(entry.routing(trace.header.top_k));
    }
    refused += driver.refused();
  }
  EXPECT_GT(refused, 0);
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

TEST_P(EveryPolicy, IsDeterministic) {
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

// Checks that the last forward of the trace has at most as many misses as experts that are not
// resident when it begins.
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

// A prompt reads only experts that were not resident when it started, each of them once. So no
// layer evicts experts that later layers of the same forward need. For lru, this is true only from
// a cold start, because lru orders experts by their last forward.
TEST_P(EveryPolicy, APromptMissesOnlyNonResidents) {
  const std::string policy = GetParam();
  for (const int layers : {2, 12}) {
    for (const int before : {0, 1, 30}) {  // number of forwards; the first is a prompt
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

// The adaptive policy finishes the forecasts of few residents. Resize finishes those of all, even
// if the number of slots stays the same. This must not change any decision.
TEST(AdaptiveReplayTest, UnfinishedForecastsDoNotChangeDecisions) {
  for (const int prefill_every : {0, 20}) {
    const Trace trace = MakeTrace({.layers = 5,
                                   .experts = 30,
                                   .top_k = 3,
                                   .forwards = 150,
                                   .drift = 0.3,
                                   .skew = 0.5,
                                   .prefill_every = prefill_every,
                                   .prefill_tokens = 20});
    for (const int64_t slots : {20, 40, 100}) {
      const PoolShape shape{.layers = 5,
                            .experts = 30,
                            .top_k = 3,
                            .slots = slots,
                            .miss_cost = {0.5f, 0.75f, 1, 1.25f, 1.5f}};
      const auto usual = Placement::Create(shape, {});
      const auto finished = Placement::Create(shape, {});
      CHECK_OK(usual.status());
      CHECK_OK(finished.status());
      for (const TraceEntry& entry : trace.entries) {
        SCOPED_TRACE(absl::StrCat(slots, " slots, step ", entry.step, ", layer ", entry.layer));
        EXPECT_TRUE((*finished)->Resize(slots).ok());
        const auto expected = (*finished)->Decide(entry.routing(3));
        const auto actual = (*usual)->Decide(entry.routing(3));
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          ASSERT_EQ(actual[i].action, expected[i].action);
          ASSERT_EQ(actual[i].victim, expected[i].victim);
        }
      }
      EXPECT_GT((*usual)->Total().evictions, 50);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(kNames),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace tidepool::moe
