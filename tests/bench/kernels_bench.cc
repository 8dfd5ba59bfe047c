// Measures products and attention at the shapes of SmolLM2-135M and compares them with the memory
// bandwidth.
//
//   bazel run --config=opt //tests/bench:kernels_bench -- --benchmark_filter=Decode
//
// Decode cases walk over copies of the weight that exceed the last-level cache, as a model's layers
// do. They report bytes/s and `share`: the ratio to the bandwidth of a plain reading loop on the
// same threads. Prefill cases report multiply-adds per second. Pack cases report bytes/s of the
// file's format.
#include <algorithm>
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
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr size_t kBeyondCaches = size_t{160} << 20;

struct Case {
  DType dtype;
  int64_t out;
  int64_t in;
  int64_t rows;
  int threads;
  Precision precision = Precision::kFast;
  Isa isa = Isa::kBest;
};

std::unique_ptr<KernelBackend> Backend(const Case& c) {
  auto backend = MakeCpuBackend({c.threads, c.precision, c.isa});
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

void BenchMatMul(benchmark::State& state, const Case& c, double bandwidth) {
  const std::unique_ptr<KernelBackend> backend = Backend(c);
  const Weight sample(c.dtype, c.out, c.in, 1);
  const size_t bytes = PackedBytes(c.dtype, c.out, c.in);
  const size_t copies = c.rows > 8 ? 1 : kBeyondCaches / bytes + 1;
  Buffer weights(copies * bytes);
  for (size_t i = 0; i < copies; ++i) {
    std::memcpy(weights.data() + i * bytes, sample.matrix().data, bytes);
  }
  Arena arena(ActivationBytes(c.rows, c.in) + (c.rows * c.out + 64) * sizeof(float));
  const std::vector<float> x = Noise(2).Floats(c.rows * c.in);
  const Activation activation = backend->Quantize({x.data(), c.rows, c.in}, &arena);
  MatMulTarget target = {.weight = sample.matrix(), .out = arena.AllocateMatrix(c.rows, c.out)};
  size_t next = 0;
  const absl::Duration start = base::Clock::Real().Monotonic();
  for (auto _ : state) {
    target.weight.data = weights.data() + next * bytes;
    backend->MatMul(activation, {&target, 1});
    next = (next + 1) % copies;
  }
  const double calls = static_cast<double>(state.iterations());
  if (c.rows <= 8) {
    state.SetBytesProcessed(static_cast<int64_t>(calls * bytes));
    const absl::Duration taken = base::Clock::Real().Monotonic() - start;
    state.counters["share"] = calls * bytes / absl::ToDoubleSeconds(taken) / bandwidth;
  }
  state.counters["mac/s"] =
      benchmark::Counter(calls * c.rows * c.out * c.in, benchmark::Counter::kIsRate);
}

// Measures one decode or prefill step of one layer's attention: 9 query heads over 3 KV heads of 64
// dimensions.
void BenchAttend(benchmark::State& state, int64_t rows, int64_t context, int threads) {
  const auto backend = Backend({DType::kF32, 0, 0, rows, threads});
  KvLayer layer;
  layer.kv_heads = 3;
  layer.k_dim = layer.v_dim = 64;
  layer.v_offset = 2 * 3 * 64 * kKvBlockTokens;
  layer.block_bytes = 2 * layer.v_offset;
  const int64_t count = (context + kKvBlockTokens - 1) / kKvBlockTokens;
  Buffer kv(count * layer.block_bytes);
  std::memset(kv.data(), 0, kv.size());
  layer.arena = kv.data();
  std::vector<int32_t> blocks(count);
  for (int64_t i = 0; i < count; ++i) blocks[i] = static_cast<int32_t>(i);
  const KvSpan span = {0, rows, context - rows, blocks};
  const std::vector<float> q = Noise(3).Floats(rows * 9 * 64);
  const AttendCall call = {{q.data(), rows, 9 * 64}, 9, 0.125f, layer, {&span, 1}};
  Arena arena(ActivationBytes(rows, 9 * 64) + AttendScratchBytes(call, threads));
  for (auto _ : state) {
    arena.Reset();
    benchmark::DoNotOptimize(backend->Attend(call, &arena));
  }
}

// Measures packing one matrix, as loading a model does. Source and destination exceed the caches.
void BenchPack(benchmark::State& state, DType dtype) {
  const int64_t cols = WholeBlocks(dtype, 2048);
  const int64_t row_bytes = cols / BlockElements(dtype) * BlockBytes(dtype);
  const int64_t rows = (int64_t{64} << 20) / row_bytes / kPanelRows * kPanelRows;
  Buffer source(rows * row_bytes);
  std::memset(source.data(), 0x11, source.size());
  Buffer packed(PackedBytes(dtype, rows, cols));
  for (auto _ : state) {
    Pack(dtype, rows, cols, source.data(), packed.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * source.size()));
}

// Measures an empty loop over two ranges, which is the cost of starting and joining the threads.
void BenchFork(benchmark::State& state, int threads) {
  base::ThreadPool pool(threads);
  for (auto _ : state) {
    pool.ParallelFor(threads, 1, [](int64_t, int64_t, int) {});
  }
}

void Register(const std::vector<int>& thread_counts) {
  for (const DType dtype : kAllDTypes) {
    benchmark::RegisterBenchmark(absl::StrCat("Pack/", DTypeName(dtype)).c_str(), BenchPack, dtype);
  }
  const std::pair<int64_t, int64_t> shapes[] = {{576, 576}, {576, 1536}, {1536, 576}};
  for (const int threads : thread_counts) {
    const double bandwidth = ReadBandwidth(threads, kBandwidthProbeBytes, base::Clock::Real());
    const std::string suffix = absl::StrCat("/threads:", threads);
    const auto add = [&](const std::string& kind, const Case& c) {
      const std::string name =
          absl::StrCat(kind, "/", DTypeName(c.dtype), "/", c.out, "x", c.in, "/rows:", c.rows,
                       c.precision == Precision::kExact ? "/exact" : "",
                       c.isa == Isa::kPortable ? "/portable" : "", suffix);
      benchmark::RegisterBenchmark(name.c_str(), BenchMatMul, c, bandwidth)->UseRealTime();
    };
    for (const auto& [in, out] : shapes) {
      add("Decode", {DType::kQ4_1, out, in, 1, threads});
      add("Prefill", {DType::kQ4_1, out, in, 512, threads});
    }
    for (const DType dtype : kAllDTypes) {
      const int64_t in = WholeBlocks(dtype, 576);
      add("Decode", {dtype, 1536, in, 1, threads});
      add("Prefill", {dtype, 1536, in, 512, threads});
    }
    add("Decode", {DType::kQ8_0, 49152, 576, 1, threads});
    add("Decode", {DType::kQ8_0, 49152, 576, 2, threads});  // as many rows as a head has
    add("Decode", {DType::kQ8_0, 49152, 2880, 2, threads});
    add("Decode", {DType::kQ6_K, 49152, 2560, 2, threads});
    add("Decode", {DType::kQ4_1, 1536, 576, 4, threads});
    add("Prefill", {DType::kQ4_1, 1536, 576, 512, threads, Precision::kExact});
    add("Prefill", {DType::kQ4_1, 1536, 576, 64, threads, Precision::kFast, Isa::kPortable});
    for (const int64_t context : {128, 1024, 8192}) {
      benchmark::RegisterBenchmark(absl::StrCat("Attend/rows:1/context:", context, suffix).c_str(),
                                   BenchAttend, 1, context, threads)
          ->UseRealTime();
    }
    benchmark::RegisterBenchmark(absl::StrCat("Attend/rows:512/context:512", suffix).c_str(),
                                 BenchAttend, 512, 512, threads)
        ->UseRealTime();
    benchmark::RegisterBenchmark(absl::StrCat("Fork", suffix).c_str(), BenchFork, threads)
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
