// Measures the time of each policy's decisions for a large model: 48 layers of 128 experts, top 8,
// with a quarter of the experts in memory. In decoding, a quarter of the chosen experts changes
// with each token. Prefills have 512 rows. The time is per layer and forward, and includes the
// bookkeeping of moe::Placement.
//
//   bazel run --config=opt //tests/bench:policy_bench
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "benchmark/benchmark.h"
#include "kernels/base/check.h"
#include "moe/policy/placement.h"
#include "moe/trace/trace.h"
#include "tests/moe/replay/trace_kinds.h"

namespace tidepool::moe {
namespace {

void BM_Decide(benchmark::State& state, PolicyKind policy, int rows) {
  const TraceKind kind{.name = "large",
                       .layers = 48,
                       .experts = 128,
                       .top_k = 8,
                       .forwards = rows == 1 ? 200 : 3,
                       .batch = rows,
                       .fixed = 0.6,
                       .topic = 0.7,
                       .token = 0.5,
                       .walk = 0.6,
                       .noise = 0.3,
                       .vocabulary = 100};
  const Trace trace = MakeTrace(kind, 7);
  const PoolShape shape{.layers = 48, .experts = 128, .top_k = 8, .slots = 48 * 128 / 4};
  auto placement = Placement::Create(shape, {.kind = policy});
  CHECK(placement.ok()) << placement.status();
  // The first forwards differ from the later ones, so skip them.
  size_t at = 0;
  const auto decide = [&] {
    benchmark::DoNotOptimize((*placement)->Decide(trace.entries[at].routing(kind.top_k)));
    at = (at + 1) % trace.entries.size();
  };
  for (int i = 0; i < 48 * 10; ++i) decide();
  for (auto _ : state) decide();
  const PlacementCounters total = (*placement)->Total();
  state.counters["hit_rate"] =
      static_cast<double>(total.hits) / static_cast<double>(total.lookups());
}

BENCHMARK_CAPTURE(BM_Decide, adaptive_decode, PolicyKind::kAdaptive, 1);
BENCHMARK_CAPTURE(BM_Decide, adaptive_prefill, PolicyKind::kAdaptive, 512);
BENCHMARK_CAPTURE(BM_Decide, lru_decode, PolicyKind::kLru, 1);
BENCHMARK_CAPTURE(BM_Decide, tide_decode, PolicyKind::kTide, 1);

}  // namespace
}  // namespace tidepool::moe

BENCHMARK_MAIN();
