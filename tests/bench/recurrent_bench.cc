// Measures the ops of a gated delta net at the shapes of a 9B hybrid (Qwen3.5): 16 K heads, 32 V
// heads, all of 128 dimensions, and a convolution over 8192 channels.
//
//   bazel run --config=opt //tests/bench:recurrent_bench
//
// `updates/s` is the number of elements of S that are updated, once for each row. An update is four
// floating-point operations of a vector. Decode cases walk over states that exceed the last-level
// cache, as a model's layers do. They report `share`: the bytes of the states, read once and
// written once, in relation to the bandwidth of a plain reading loop on the same threads. Product
// is a matrix product of the same model, for comparison: a row needs about 8e9 multiply-adds, and
// 24 layers have a delta net.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "benchmark/benchmark.h"
#include "kernels/bandwidth.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "tests/kernels/state_memory.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr int kKHeads = 16;
constexpr int kVHeads = 32;
constexpr int kDim = 128;
constexpr int64_t kKeys = int64_t{kKHeads} * kDim;
constexpr int64_t kValues = int64_t{kVHeads} * kDim;
constexpr int64_t kChannels = 2 * kKeys + kValues;
constexpr int kKernel = 4;

struct Case {
  int sequences;
  int64_t rows;  // of each sequence
  int threads;
  Isa isa = Isa::kBest;
};

std::unique_ptr<KernelBackend> Backend(const Case& c) {
  auto backend = MakeCpuBackend({.threads = c.threads, .isa = c.isa});
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

// Returns one span for each sequence. It reads state s and writes state s + 1.
std::vector<StateSpan> SpansOf(const Case& c, const StateMemory& memory, int first_state) {
  std::vector<StateSpan> spans;
  for (int i = 0; i < c.sequences; ++i) {
    const int state = first_state + 2 * i;
    spans.push_back({.first_row = i * c.rows,
                     .rows = c.rows,
                     .in = memory.Table(state),
                     .out = memory.Table(state + 1)});
  }
  return spans;
}

void BenchDelta(benchmark::State& state, const Case& c, double bandwidth) {
  const auto backend = Backend(c);
  const int64_t bytes = kVHeads * DeltaUnitBytes(kDim, kDim);
  const int layers =
      c.rows > 8 ? 1
                 : static_cast<int>(std::max<int64_t>(1, (256 << 20) / (2 * bytes * c.sequences)));
  StateMemory memory(kVHeads, DeltaUnitBytes(kDim, kDim), 2 * c.sequences * layers);
  for (int i = 0; i < 2 * c.sequences * layers; ++i) {
    memory.Write(i, std::vector<float>(memory.StateFloats(), 0.01f));
  }
  const int64_t rows = c.sequences * c.rows;
  std::vector<float> x = Noise(1).Floats(rows * kChannels);
  std::vector<float> ab = Noise(2).Floats(rows * 2 * kVHeads);
  std::vector<float> out(rows * kValues);
  const std::vector<float> decay(kVHeads, -0.5f);
  const std::vector<float> dt_bias(kVHeads, 0.1f);
  int layer = 0;
  const absl::Duration start = base::Clock::Real().Monotonic();
  for (auto _ : state) {
    const std::vector<StateSpan> spans = SpansOf(c, memory, 2 * c.sequences * layer);
    backend->DeltaNet({.q = {x.data(), rows, kKeys, kChannels},
                       .k = {x.data() + kKeys, rows, kKeys, kChannels},
                       .v = {x.data() + 2 * kKeys, rows, kValues, kChannels},
                       .a = {ab.data(), rows, kVHeads, int64_t{2} * kVHeads},
                       .b = {ab.data() + kVHeads, rows, kVHeads, int64_t{2} * kVHeads},
                       .decay = decay,
                       .dt_bias = dt_bias,
                       .k_heads = kKHeads,
                       .v_heads = kVHeads,
                       .scale = 1 / std::sqrt(static_cast<float>(kDim)),
                       .state = memory.array(),
                       .spans = spans,
                       .out = {out.data(), rows, kValues}});
    layer = (layer + 1) % layers;
  }
  const double calls = static_cast<double>(state.iterations());
  const double seconds = absl::ToDoubleSeconds(base::Clock::Real().Monotonic() - start);
  state.counters["updates/s"] =
      benchmark::Counter(calls * rows * kVHeads * kDim * kDim, benchmark::Counter::kIsRate);
  state.counters["us/row"] = seconds / calls / rows * 1e6;
  if (c.rows <= 8) {
    state.counters["share"] = 2.0 * bytes * c.sequences * calls / seconds / bandwidth;
  }
}

void BenchConv(benchmark::State& state, const Case& c) {
  const auto backend = Backend(c);
  StateMemory memory(ConvUnits(kChannels), ConvUnitBytes(kKernel), 2 * c.sequences);
  for (int i = 0; i < 2 * c.sequences; ++i) {
    memory.Write(i, std::vector<float>(memory.StateFloats(), 0.5f));
  }
  const int64_t rows = c.sequences * c.rows;
  std::vector<float> x = Noise(1).Floats(rows * kChannels);
  const std::vector<float> weight = Noise(2).Floats(kChannels * kKernel);
  // Without this bias, the values would become smaller and smaller.
  const std::vector<float> bias(kChannels, 0.5f);
  const std::vector<StateSpan> spans = SpansOf(c, memory, 0);
  for (auto _ : state) {
    backend->CausalConv({.x = {x.data(), rows, kChannels},
                         .weight = weight,
                         .bias = bias,
                         .kernel = kKernel,
                         .activation = ConvActivation::kSilu,
                         .state = memory.array(),
                         .spans = spans});
  }
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(state.iterations() * rows),
                                                benchmark::Counter::kIsRate);
}

void BenchGatedNorm(benchmark::State& state, const Case& c) {
  const auto backend = Backend(c);
  const std::vector<float> x = Noise(1).Floats(c.rows * kValues);
  const std::vector<float> z = Noise(2).Floats(c.rows * kValues);
  const std::vector<float> weight = Noise(3).Floats(kDim);
  Arena arena(ActivationBytes(c.rows, kValues));
  for (auto _ : state) {
    arena.Reset();
    backend->GatedNorm({x.data(), c.rows, kValues}, {z.data(), c.rows, kValues}, weight, 1e-6f,
                       &arena);
  }
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(state.iterations() * c.rows),
                                                benchmark::Counter::kIsRate);
}

void BenchProduct(benchmark::State& state, const Case& c) {
  constexpr int64_t kHidden = 4096;
  const auto backend = Backend(c);
  const Weight weight(DType::kQ4_K, kHidden, kHidden, 1);
  const std::vector<float> x = Noise(2).Floats(c.rows * kHidden);
  Arena arena(ActivationBytes(c.rows, kHidden) + (c.rows * kHidden + 64) * sizeof(float));
  const Activation activation = backend->Quantize({x.data(), c.rows, kHidden}, &arena);
  const MatMulTarget target = {.weight = weight.matrix(),
                               .out = arena.AllocateMatrix(c.rows, kHidden)};
  for (auto _ : state) backend->MatMul(activation, {&target, 1});
  state.counters["mac/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * c.rows * kHidden * kHidden,
                         benchmark::Counter::kIsRate);
}

void Register(const std::vector<int>& thread_counts) {
  for (const int threads : thread_counts) {
    const double bandwidth = ReadBandwidth(threads, kBandwidthProbeBytes, base::Clock::Real());
    const auto name = [&](const std::string& op, const Case& c) {
      return absl::StrCat(op, "/sequences:", c.sequences, "/rows:", c.rows,
                          c.isa == Isa::kAvx2 ? "/avx2" : "", "/threads:", threads);
    };
    const auto add_delta = [&](const Case& c) {
      benchmark::RegisterBenchmark(name("DeltaNet", c).c_str(), BenchDelta, c, bandwidth)
          ->UseRealTime();
    };
    const Case prefill = {1, 512, threads};
    add_delta(prefill);
    add_delta({1, 512, threads, Isa::kAvx2});
    for (const int sequences : {1, 8, 64}) add_delta({sequences, 1, threads});
    for (const Case& c : {prefill, Case{1, 1, threads}}) {
      benchmark::RegisterBenchmark(name("CausalConv", c).c_str(), BenchConv, c)->UseRealTime();
      benchmark::RegisterBenchmark(name("GatedNorm", c).c_str(), BenchGatedNorm, c)->UseRealTime();
    }
    benchmark::RegisterBenchmark(name("Product", prefill).c_str(), BenchProduct, prefill)
        ->UseRealTime();
    benchmark::AddCustomContext(absl::StrCat("read_bandwidth_", threads, "_threads"),
                                absl::StrCat(bandwidth * 1e-9, " GB/s"));
  }
}

}  // namespace
}  // namespace tidepool::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  tidepool::kernels::Register({1, 2});
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
