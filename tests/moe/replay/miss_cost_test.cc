// Tests layers whose experts have records of different sizes: a policy that knows the cost of each
// miss reads fewer bytes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/policy/placement.h"
#include "moe/policy/residency.h"
#include "moe/replay/replay.h"
#include "tests/moe/replay/trace_kinds.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MissCostsTest, AreProportionalToBytesAndOneOnAverage) {
  EXPECT_THAT(MissCosts({10, 20, 30}), ElementsAre(0.5f, 1.0f, 1.5f));
  EXPECT_THAT(MissCosts({1, 3}), ElementsAre(0.5f, 1.5f));
  EXPECT_THAT(MissCosts({70, 70, 70}), IsEmpty());
  EXPECT_THAT(MissCosts({}), IsEmpty());
}

TEST(MissCostsTest, ShapesRejectInvalidCosts) {
  PoolShape shape{.layers = 2, .experts = 4, .top_k = 2, .slots = 3, .miss_cost = {1}};
  EXPECT_EQ(shape.Validate().message(),
            "there are 1 miss costs; there must be 2, one for each layer");
  shape.miss_cost = {2, 0};
  EXPECT_EQ(shape.Validate().message(), "a miss cost is 0; it must be greater than 0");
  shape.miss_cost = {1.5f, 0.5f};
  EXPECT_TRUE(shape.Validate().ok());
}

const TraceKind& KindNamed(const std::string& name) {
  return *std::find_if(TraceKinds().begin(), TraceKinds().end(),
                       [&](const TraceKind& kind) { return kind.name == name; });
}

// Makes the records of every second layer `times` as large.
Trace Unequal(const std::string& kind, int64_t times) {
  Trace trace = MakeTrace(KindNamed(kind), 103);
  for (int layer = 0; layer < trace.header.layers; layer += 2) {
    trace.header.expert_bytes[layer] *= times;
  }
  return trace;
}

ReplayResult RunOn(const Trace& trace, const PoolShape& shape) {
  auto placement = Placement::Create(shape, {});
  CHECK_OK(placement.status());
  return Replay(trace, {}, placement->get());
}

struct BothWays {
  ReplayResult by_hits;   // the policy assumes that all misses cost the same
  ReplayResult by_bytes;  // the policy knows the bytes of each miss, as in `replay`
};

BothWays RunBothWays(const Trace& trace, int64_t slots) {
  auto placement = MakePlacement(trace, slots, {"adaptive", {}});
  CHECK_OK(placement.status());
  PoolShape shape = (*placement)->shape();
  shape.miss_cost.clear();
  return {.by_hits = RunOn(trace, shape), .by_bytes = Replay(trace, {}, placement->get())};
}

TEST(MissCostTest, ReadsFewerBytesIfRecordsDiffer) {
  double all = 0;
  int cases = 0;
  for (const char* kind : {"story", "crowd", "shifts", "few", "visits", "trio"}) {
    const Trace trace = Unequal(kind, 8);
    for (const int eighths : {1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat(kind, ", ", eighths, " eighths"));
      const BothWays ran = RunBothWays(trace, trace.header.all_experts() * eighths / 8);
      const double ratio = static_cast<double>(ran.by_bytes.bytes_moved) /
                           static_cast<double>(ran.by_hits.bytes_moved);
      EXPECT_LT(ratio, 0.96);
      EXPECT_LT(ran.by_bytes.counters.hits, ran.by_hits.counters.hits);
      all += ratio;
      ++cases;
    }
  }
  EXPECT_LT(all / cases, 0.72);
}

// A factor that is the same for all layers changes nothing.
TEST(MissCostTest, EqualCostsChangeNothing) {
  for (const char* kind : {"turns", "few"}) {
    const Trace trace = MakeTrace(KindNamed(kind), 103);
    PoolShape shape{.layers = trace.header.layers,
                    .experts = trace.header.experts,
                    .top_k = trace.header.top_k,
                    .slots = trace.header.all_experts() / 4};
    const ReplayResult without = RunOn(trace, shape);
    shape.miss_cost.assign(shape.layers, 1.0f);
    EXPECT_EQ(RunOn(trace, shape).counters, without.counters) << kind;
  }
}

}  // namespace
}  // namespace tidepool::moe
