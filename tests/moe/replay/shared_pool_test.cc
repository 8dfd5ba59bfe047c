// What sequences do to each other's experts in one pool: a prompt to the decoding around it, and a
// sequence that wants everything to one that wants little.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/policy/placement.h"
#include "moe/replay/replay.h"
#include "moe/replay/trace.h"

namespace tidepool::moe {
namespace {

constexpr int kLayers = 4;
constexpr int kExperts = 64;
constexpr int kTopK = 4;
constexpr int64_t kAllExperts = kLayers * kExperts;

// A sequence whose tokens draw their experts of each layer independently, in proportion to
// 1 / (1 + rank)^skew; ranks are its own.
class Talker {
 public:
  Talker(int64_t request, double skew, uint32_t seed) : request_(request), random_(seed) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<int32_t>& order = orders_.emplace_back(kExperts);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
    }
    for (int rank = 0; rank < kExperts; ++rank) chances_.push_back(std::pow(1 + rank, -skew));
  }

  // One forward of so many tokens.
  void Talk(int tokens, Trace* trace) {
    const int64_t step = trace->entries.empty() ? 0 : trace->entries.back().step + 1;
    for (int layer = 0; layer < kLayers; ++layer) {
      TraceEntry& entry = trace->entries.emplace_back();
      entry = {.step = step,
               .layer = layer,
               .phases = {tokens > 1 ? Phase::kPrefill : Phase::kDecode},
               .requests = {request_}};
      for (int token = 0; token < tokens; ++token) AddToken(layer, &entry.ids);
    }
  }

 private:
  void AddToken(int layer, std::vector<int32_t>* ids) {
    std::discrete_distribution<int> rank(chances_.begin(), chances_.end());
    const auto begin = static_cast<int64_t>(ids->size());
    while (static_cast<int64_t>(ids->size()) < begin + kTopK) {
      const int32_t expert = orders_[layer][rank(random_)];
      if (std::find(ids->begin() + begin, ids->end(), expert) == ids->end()) ids->push_back(expert);
    }
  }

  const int64_t request_;
  std::mt19937 random_;
  std::vector<std::vector<int32_t>> orders_;  // [layers, experts]: by liking
  std::vector<double> chances_;               // by rank
};

Trace Empty() {
  return {.header = {.model = "talk",
                     .layers = kLayers,
                     .experts = kExperts,
                     .top_k = kTopK,
                     .expert_bytes = std::vector<int64_t>(kLayers, 1 << 20)},
          .entries = {}};
}

struct Hits {
  int64_t hits = 0;
  int64_t lookups = 0;

  void Add(absl::Span<const Lookup> found) {
    for (const Lookup& lookup : found) hits += lookup.action == LookupAction::kHit;
    lookups += static_cast<int64_t>(found.size());
  }
  double rate() const { return static_cast<double>(hits) / static_cast<double>(lookups); }
};

std::unique_ptr<Placement> MustPlace(const Trace& trace, int64_t slots, const std::string& policy) {
  auto placement = MakePlacement(trace, slots, {policy, {}});
  CHECK_OK(placement.status());
  return *std::move(placement);
}

// A sequence that decodes, and every 80 forwards a prompt of 512 tokens from another one, which
// needs nearly all experts of all layers.
constexpr int kDecodes = 80;
constexpr int kNear = 4;  // forwards after a prompt that are "at once"

struct AroundPrompts {
  Hits before;  // in the half of the forwards that precedes a prompt
  Hits after;   // in the first few behind one
};

AroundPrompts DecodeAroundPrompts(const std::string& policy, uint32_t seed) {
  Trace trace = Empty();
  Talker decoder(0, 1.5, seed);
  Talker prompt(1, 0.8, seed + 1000);
  std::vector<int> since;  // a prompt, of each forward; 0: it is one
  for (int turn = 0; turn < 8; ++turn) {
    for (int i = 1; i <= kDecodes; ++i) {
      decoder.Talk(1, &trace);
      since.push_back(i);
    }
    prompt.Talk(512, &trace);
    since.push_back(0);
  }
  const auto placement = MustPlace(trace, kAllExperts / 4, policy);
  AroundPrompts around;
  for (const TraceEntry& entry : trace.entries) {
    const absl::Span<const Lookup> found = placement->Decide(entry.routing(kTopK));
    const int64_t turn = entry.step / (kDecodes + 1);
    const int place = since[entry.step];
    if (turn > 0 && place > kDecodes / 2) around.before.Add(found);
    if (turn > 0 && place >= 1 && place <= kNear) around.after.Add(found);
  }
  return around;
}

TEST(SharedPoolTest, APromptDoesNotPolluteWhatDecodingNeeds) {
  constexpr double kLost = 0.05;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const AroundPrompts adaptive = DecodeAroundPrompts("adaptive", seed);
    const AroundPrompts lru = DecodeAroundPrompts("lru", seed);
    EXPECT_GE(adaptive.after.rate(), adaptive.before.rate() - kLost);
    // It is not that nothing could be lost.
    EXPECT_GE(adaptive.before.rate(), lru.before.rate());
    // A policy whose pool is swept by prompts fails this.
    EXPECT_LT(lru.after.rate(), lru.before.rate() - 4 * kLost);
  }
}

// How two sequences take turns.
struct Company {
  const char* name;
  double skew;       // of the other one
  int other_tokens;  // of its forwards
  int other_turns;   // for each of the first one's
};

void PrintTo(const Company& company, std::ostream* out) { *out << company.name; }

class SharedPoolWith : public testing::TestWithParam<Company> {};

// Hit rates by request in the second half of the trace.
std::map<int64_t, double> Rates(const Trace& trace, int64_t slots, const std::string& policy) {
  const auto placement = MustPlace(trace, slots, policy);
  std::map<int64_t, Hits> hits;
  const int64_t last = trace.entries.back().step;
  for (const TraceEntry& entry : trace.entries) {
    const absl::Span<const Lookup> found = placement->Decide(entry.routing(kTopK));
    if (entry.step > last / 2) hits[entry.requests[0]].Add(found);
  }
  std::map<int64_t, double> rates;
  for (const auto& [request, counted] : hits) rates[request] = counted.rate();
  return rates;
}

// Least of the two sequences' hit rates, each as a share of what it has alone with half of the
// slots.
double Fairness(const Company& company, const std::string& policy, uint32_t seed) {
  constexpr int kTurns = 120;
  constexpr int64_t kSlots = kAllExperts / 8;
  Trace together = Empty();
  std::vector<Trace> alone = {Empty(), Empty()};
  Talker modest(0, 2, seed);
  Talker other(1, company.skew, seed + 1000);
  const auto talk = [&](Talker* talker, int tokens, Trace* own) {
    const size_t begin = together.entries.size();
    talker->Talk(tokens, &together);
    const int64_t step = own->entries.empty() ? 0 : own->entries.back().step + 1;
    for (size_t i = begin; i < together.entries.size(); ++i) {
      own->entries.push_back(together.entries[i]);
      own->entries.back().step = step;
    }
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    talk(&modest, 1, &alone[0]);
    for (int i = 0; i < company.other_turns; ++i) talk(&other, company.other_tokens, &alone[1]);
  }
  const std::map<int64_t, double> shared = Rates(together, kSlots, policy);
  double fairness = 1e9;
  for (int request = 0; request < 2; ++request) {
    const double entitled = Rates(alone[request], kSlots / 2, policy).at(request);
    if (entitled > 0) fairness = std::min(fairness, shared.at(request) / entitled);
  }
  return fairness;
}

// The pool goes where it brings the most hits, so that who asks seldom may have somewhat less.
TEST_P(SharedPoolWith, NoneHasMuchLessThanItsHalfOfThePoolAlone) {
  constexpr double kFair = 0.75;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_GE(Fairness(GetParam(), "adaptive", seed), kFair);
    // A policy that gives the pool to whoever asks most often fails this.
    EXPECT_LT(Fairness(GetParam(), "lru", seed), kFair / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedPoolWith,
                         testing::Values(Company{"OneThatTalksMoreAndWantsAll", 0, 1, 4},
                                         Company{"OneThatTalksMoreAndWantsOthers", 0.7, 1, 6},
                                         Company{"OneThatReadsALongPrompt", 0.5, 256, 1}),
                         [](const auto& company) { return std::string(company.param.name); });

}  // namespace
}  // namespace tidepool::moe
