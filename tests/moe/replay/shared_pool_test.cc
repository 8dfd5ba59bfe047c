// Tests how sequences affect each other's experts in one pool: a prompt affects decoding streams,
// and a sequence that uses many experts affects one that uses few.
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
#include "moe/trace/trace.h"

namespace tidepool::moe {
namespace {

constexpr int kLayers = 4;
constexpr int kExperts = 64;
constexpr int kTopK = 4;
constexpr int64_t kAllExperts = kLayers * kExperts;

// A sequence whose tokens draw their experts of each layer independently, in proportion to 1 / (1 +
// rank)^skew. Each sequence has its own ranks.
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

  // Adds one forward of `tokens` tokens.
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
  std::vector<std::vector<int32_t>> orders_;  // experts by [layers][rank]
  std::vector<double> chances_;               // probability by rank
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

// One sequence decodes. After every 80 forwards another sequence has a prompt of 512 tokens, which
// needs nearly all experts of all layers.
constexpr int kDecodes = 80;
constexpr int kNear = 4;  // number of forwards after a prompt that `after` counts

struct AroundPrompts {
  Hits before;  // hits in the second half of the forwards between two prompts
  Hits after;   // hits in the first kNear forwards after a prompt
};

AroundPrompts DecodeAroundPrompts(const std::string& policy, uint32_t seed) {
  Trace trace = Empty();
  Talker decoder(0, 1.5, seed);
  Talker prompt(1, 0.8, seed + 1000);
  // for each forward, the number of forwards since the last prompt; 0 for a prompt
  std::vector<int> since;
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

TEST(SharedPoolTest, APromptDoesNotEvictTheExpertsOfDecoding) {
  constexpr double kLost = 0.05;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const AroundPrompts adaptive = DecodeAroundPrompts("adaptive", seed);
    const AroundPrompts lru = DecodeAroundPrompts("lru", seed);
    EXPECT_GE(adaptive.after.rate(), adaptive.before.rate() - kLost);
    // Makes sure that there were hits to lose.
    EXPECT_GE(adaptive.before.rate(), lru.before.rate());
    // Shows that the test detects policies whose pool is emptied by prompts, such as lru.
    EXPECT_LT(lru.after.rate(), lru.before.rate() - 4 * kLost);
  }
}

// How two sequences share the forwards.
struct Company {
  const char* name;
  double skew;       // skew of the second sequence
  int other_tokens;  // tokens in each of its forwards
  int other_turns;   // its forwards for each forward of the first sequence
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

// Runs two sequences together and each one alone with half of the slots. Returns the smaller of the
// two ratios of their hit rates.
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

// The pool goes to the experts that bring the most hits. A sequence with few forwards may therefore
// have slightly fewer hits.
TEST_P(SharedPoolWith, EachSequenceKeepsTheHitRateOfHalfThePool) {
  constexpr double kFair = 0.75;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_GE(Fairness(GetParam(), "adaptive", seed), kFair);
    // Shows that the test detects policies that give the pool to the sequence with the most
    // forwards, such as lru.
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
