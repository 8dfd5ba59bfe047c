// Measures the time of a plan while many requests with a common prefix of 4,096 tokens wait. One
// request computes the prefix, and the others wait for the prefix. Each plan is dropped.
//
//   bazel run --config=opt //tests/bench:scheduler_bench
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "engine/scheduler/batch_scheduler.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kPrefix = 4096;
constexpr int64_t kOwn = 64;  // tokens of each prompt after the common prefix

void BM_Plan(benchmark::State& state, int64_t principals) {
  const int64_t waiting = state.range(0);
  const KvSpec spec = {.kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = kernels::DType::kF32};
  const auto cache = KvCache::Create({spec}, {.memory_bytes = 64 << 20}).value();
  const auto decoder = MakeAutoregressiveDecoder(fakes::kByteVocabSize);
  const auto tokenizer = fakes::MakeByteTokenizer();
  BatchScheduler scheduler({.limits = {.rows = 512, .logit_rows = 64}, .prefill_chunk = 256},
                           cache.get(), decoder.get());
  for (int64_t i = 0; i < waiting; ++i) {
    GenerationRequest request;
    request.token_ids.assign(kPrefix, 1);
    request.token_ids.resize(kPrefix + kOwn, static_cast<int32_t>(2 + i));
    request.prompt_length = kPrefix + kOwn;
    request.principal = absl::StrCat("principal-", i % principals);
    request.credit = 1;
    OutputText text(request.stopping, 1000, tokenizer.get());
    scheduler.Add(std::make_unique<Sequence>(i, std::move(request), std::move(text)));
  }
  for (auto _ : state) {
    const StepPlan plan = scheduler.Plan(absl::ZeroDuration());
    benchmark::DoNotOptimize(plan.items.size());
  }
  state.SetComplexityN(waiting);
}

BENCHMARK_CAPTURE(BM_Plan, one_principal, 1)->RangeMultiplier(4)->Range(64, 4096)->Complexity();
BENCHMARK_CAPTURE(BM_Plan, many_principals, 1024)
    ->RangeMultiplier(4)
    ->Range(64, 4096)
    ->Complexity();

}  // namespace
}  // namespace tidepool::engine

BENCHMARK_MAIN();
