// Measures the kernels of the CUDA backend on a GPU. Compares the bytes of weights, KV and rows per
// second with the bandwidth of a copy on the same GPU. Exits with 77 if there is no GPU. Each
// number is the median of kRepeats runs of a CUDA graph with many calls. Together, the weights of
// these calls are larger than the L2 cache.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/nvidia_stream.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kNoGpu = 77;
constexpr int kRepeats = 7;
constexpr size_t kColdBytes = size_t{512} << 20;

void Check(cudaError_t error) { CHECK(error == cudaSuccess) << cudaGetErrorString(error); }

// Device memory that lives until the program ends.
template <typename T>
T* Allocate(size_t count) {
  std::byte* data = AllocateDevice(0, count * sizeof(T));
  CHECK(data != nullptr) << "no " << count * sizeof(T) << " bytes of device memory";
  return reinterpret_cast<T*>(data);
}

class Bench {
 public:
  explicit Bench(const DeviceInfo& device)
      : stream_(*MakeStream(0)),
        staging_(*StagingRing::Create(0, stream_)),
        scratch_(0, stream_),
        context_{stream_, staging_.get(), Precision::kFast, device, &scratch_} {}

  const CudaContext& context() const { return context_; }

  // Returns the time of one call in seconds. Measures `calls` calls, each of which gets its number.
  double Seconds(int calls, const std::function<void(int)>& call) {
    call(0);  // allocates memory and loads modules
    Check(cudaStreamSynchronize(stream_->handle()));
    cudaGraph_t graph;
    Check(cudaStreamBeginCapture(stream_->handle(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call(i);
    Check(cudaStreamEndCapture(stream_->handle(), &graph));
    cudaGraphExec_t runnable;
    Check(cudaGraphInstantiate(&runnable, graph, 0));
    cudaEvent_t begin, end;
    Check(cudaEventCreate(&begin));
    Check(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i <= kRepeats; ++i) {
      Check(cudaEventRecord(begin, stream_->handle()));
      Check(cudaGraphLaunch(runnable, stream_->handle()));
      Check(cudaEventRecord(end, stream_->handle()));
      Check(cudaEventSynchronize(end));
      float milliseconds = 0;
      Check(cudaEventElapsedTime(&milliseconds, begin, end));
      if (i > 0) times.push_back(milliseconds);  // the first run warms up
    }
    std::sort(times.begin(), times.end());
    Check(cudaGraphExecDestroy(runnable));
    Check(cudaGraphDestroy(graph));
    return times[kRepeats / 2] * 1e-3 / calls;
  }

  void Report(const std::string& name, double seconds, double value, const char* unit,
              double share) {
    absl::PrintF("%-44s %10.2f us %10.1f %-6s", name, seconds * 1e6, value, unit);
    if (share > 0) absl::PrintF(" %5.1f %%", 100 * share);
    std::printf("\n");
    std::fflush(stdout);
    json_.push_back(
        absl::StrFormat(R"({"name":"%s","us":%.3f,"value":%.2f,"unit":"%s","share":%.4f})", name,
                        seconds * 1e6, value, unit, share));
  }

  std::string Json() const { return absl::StrCat("[", absl::StrJoin(json_, ","), "]"); }

 private:
  Stream* stream_;
  std::unique_ptr<StagingRing> staging_;
  DeviceScratch scratch_;
  CudaContext context_;
  std::vector<std::string> json_;
};

// Fills device memory with the same noise in each run.
void FillWithNoise(std::byte* data, size_t bytes) {
  std::vector<uint64_t> noise(std::min(bytes, size_t{1} << 20) / 8);
  uint64_t state = 1;
  for (uint64_t& word : noise) {
    state = state * 6364136223846793005 + 1442695040888963407;
    word = state ^ state >> 29;
  }
  for (size_t at = 0; at < bytes; at += noise.size() * 8) {
    Check(cudaMemcpy(data + at, noise.data(), std::min(bytes - at, noise.size() * 8),
                     cudaMemcpyHostToDevice));
  }
}

// Rows of floats between -1 and 1, in device memory.
ConstMatrixView Noise(int64_t rows, int64_t cols) {
  std::vector<float> values(rows * cols);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  float* data = Allocate<float>(values.size());
  Check(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
  return {data, rows, cols};
}

double CopyBytesPerSecond(Bench& bench) {
  const size_t bytes = size_t{1} << 30;
  std::byte* from = Allocate<std::byte>(bytes);
  std::byte* to = Allocate<std::byte>(bytes);
  const double seconds =
      bench.Seconds(4, [&](int) { CopyOnDevice(bench.context().stream, from, to, bytes); });
  FreeDevice(0, from);
  FreeDevice(0, to);
  const double rate = 2 * static_cast<double>(bytes) / seconds;
  bench.Report("copy 1 GiB (read and written)", seconds, rate * 1e-9, "GB/s", 0);
  return rate;
}

struct Shape {
  DType dtype;
  int64_t rows;
  int64_t cols;
};

void MeasureProducts(Bench& bench, const Shape& shape, absl::Span<const int64_t> x_rows,
                     double copy_rate) {
  const size_t bytes = PackedBytes(shape.dtype, shape.rows, shape.cols);
  const int count = static_cast<int>(kColdBytes / bytes + 2);
  std::byte* weights = Allocate<std::byte>(bytes * count);
  FillWithNoise(weights, bytes * count);
  for (const int64_t rows : x_rows) {
    const ConstMatrixView values = Noise(rows, shape.cols);
    const int64_t blocks = shape.cols / kQuantBlock;
    ActivationBuffer buffer;
    buffer.values = MatrixView(nullptr, rows, shape.cols);
    buffer.quants = Allocate<int8_t>(rows * shape.cols);
    buffer.scales = Allocate<float>(rows * blocks);
    buffer.sums = Allocate<float>(rows * blocks);
    buffer.half_sums = Allocate<int16_t>(2 * rows * blocks);
    QuantizeRows(bench.context(), values, buffer);
    Activation x = buffer.View();
    x.values = values;
    const MatrixView out(Allocate<float>(rows * shape.rows), rows, shape.rows);
    const double seconds = bench.Seconds(count, [&](int i) {
      const MatMulTarget target = {
          .weight = {shape.dtype, shape.rows, shape.cols, weights + bytes * i}, .out = out};
      MultiplyTargets(bench.context(), x, {&target, 1});
    });
    const std::string name = absl::StrCat("product ", DTypeName(shape.dtype), " ", shape.rows, "x",
                                          shape.cols, ", ", rows, rows == 1 ? " row" : " rows");
    if (rows <= 16) {
      const double rate = static_cast<double>(bytes) / seconds;
      bench.Report(name, seconds, rate * 1e-9, "GB/s", rate / copy_rate);
    } else {
      const double operations = 2.0 * static_cast<double>(rows * shape.rows * shape.cols);
      bench.Report(name, seconds, operations / seconds * 1e-12, "TOP/s", 0);
    }
  }
  FreeDevice(0, weights);
}

class BenchMemory final : public Memory {
 public:
  std::byte* Allocate(size_t bytes) override { return AllocateDevice(0, bytes); }
  void Free(std::byte* data) override { FreeDevice(0, data); }
  bool on_host() const override { return false; }
};

// Each sequence has `tokens` tokens, and the last `rows` of them are queries. The shape is that of
// Llama 3 8B: 32 heads, 8 KV heads, 128 dimensions.
struct AttentionCase {
  DType dtype;
  int sequences;
  int64_t rows;
  int64_t tokens;
};

void MeasureAttention(Bench& bench, const AttentionCase& attention, double copy_rate) {
  constexpr int kHeads = 32;
  const auto& [dtype, sequences, rows, tokens] = attention;
  KvLayer layer = {.dtype = dtype, .kv_heads = 8, .k_dim = 128, .v_dim = 128};
  const size_t part = layer.kv_heads * KvHeadBytes(layer.dtype, layer.k_dim);
  layer.v_offset = part;
  layer.block_bytes = 2 * part;
  const int64_t blocks = (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  const size_t bytes = sequences * blocks * layer.block_bytes;
  layer.arena = Allocate<std::byte>(bytes);
  Check(cudaMemset(layer.arena, 0x11, bytes));
  std::vector<int32_t> table(sequences * blocks);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::vector<KvSpan> spans;
  for (int s = 0; s < sequences; ++s) {
    spans.push_back({.first_row = s * rows,
                     .rows = rows,
                     .first_slot = tokens - rows,
                     .blocks = absl::MakeConstSpan(table).subspan(s * blocks, blocks)});
  }
  const int64_t all_rows = sequences * rows;
  const AttendCall call = {Noise(all_rows, kHeads * layer.k_dim), kHeads, 0.0884f, layer, spans};
  const size_t arena_bytes = ActivationBytes(all_rows, int64_t{kHeads} * layer.v_dim) +
                             AttendScratchBytes(call, kCudaThreads);
  BenchMemory memory;
  Arena arena(arena_bytes, &memory);
  const ActivationBuffer out = AllocateAttended(call, Precision::kFast, &arena);
  const double seconds =
      bench.Seconds(16, [&](int) { AttendRows(bench.context(), call, out, &arena); });
  const std::string name = absl::StrCat("attention ", DTypeName(dtype), ", ", sequences, " x ",
                                        rows, " rows, ", tokens, " tokens");
  if (rows == 1) {
    const double rate = static_cast<double>(bytes) / seconds;
    bench.Report(name, seconds, rate * 1e-9, "GB/s", rate / copy_rate);
  } else {
    const double pairs = static_cast<double>(all_rows) * (tokens - (rows - 1) / 2.0);
    const double operations = 2.0 * pairs * kHeads * (layer.k_dim + layer.v_dim);
    bench.Report(name, seconds, operations / seconds * 1e-12, "TFLOP/s", 0);
  }
  FreeDevice(0, layer.arena);
}

// Measures the norm of rows and their quantisation to int8.
void MeasureRows(Bench& bench, int64_t rows, double copy_rate) {
  constexpr int64_t kCols = 4096;
  const ConstMatrixView x = Noise(rows, kCols);
  const absl::Span<const float> weight(Noise(1, kCols).data, kCols);
  BenchMemory memory;
  Arena arena(ActivationBytes(rows, kCols), &memory);
  const ActivationBuffer out =
      AllocateActivation(rows, kCols, Precision::kFast, ActivationParts::kAll, &arena);
  const auto report = [&](const char* name, const std::function<void(int)>& call) {
    const double seconds = bench.Seconds(16, call);
    const double rate = 8.0 * static_cast<double>(rows * kCols) / seconds;
    bench.Report(absl::StrCat(name, ", ", rows, " x ", kCols), seconds, rate * 1e-9, "GB/s",
                 rate / copy_rate);
  };
  report("norm", [&](int) { NormRows(bench.context(), x, weight, 1e-5f, out); });
  report("quantize", [&](int) { QuantizeRows(bench.context(), x, out); });
}

// Measures copies of experts from pinned host memory, on another stream than the ops.
void MeasureHostCopies(Bench& bench, size_t bytes) {
  constexpr int kCopies = 32;
  const size_t all = kCopies * bytes;
  constexpr size_t kPage = 64 << 10;
  void* const host = std::aligned_alloc(kPage, all);
  CHECK(host != nullptr);
  auto* const data = static_cast<std::byte*>(host);
  std::fill_n(data, all, std::byte{1});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCopies; ++i) CHECK_OK(PinHost(0, data + i * bytes, bytes));
  const std::chrono::duration<double> pinning = std::chrono::steady_clock::now() - begin;
  bench.Report(absl::StrCat("pin ", bytes >> 10, " KiB of host memory"), pinning.count() / kCopies,
               static_cast<double>(all) / pinning.count() * 1e-9, "GB/s", 0);
  std::byte* const to = Allocate<std::byte>(all);
  const double seconds = bench.Seconds(kCopies, [&](int i) {
    CopyPinnedIn(bench.context().stream, data + i * bytes, to + i * bytes, bytes);
  });
  bench.Report(absl::StrCat("copy ", bytes >> 10, " KiB of pinned host memory"), seconds,
               static_cast<double>(bytes) / seconds * 1e-9, "GB/s", 0);
  FreeDevice(0, to);
  for (int i = 0; i < kCopies; ++i) UnpinHost(0, data + i * bytes);
  std::free(host);
}

void MeasureAll() {
  const auto device = FindDevice(0);
  CHECK(device.ok());
  Bench bench(*device);
  absl::PrintF("%s, %d processors\n", device->name, device->processors);
  const double copy_rate = CopyBytesPerSecond(bench);
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    MeasureProducts(bench, {dtype, 4096, 4096}, {1, 2, 4, 8, 512}, copy_rate);
    MeasureProducts(bench, {dtype, 14336, 4096}, {1, 8, 512}, copy_rate);
    MeasureProducts(bench, {dtype, 4096, 14336}, {1, 8}, copy_rate);
  }
  MeasureProducts(bench, {DType::kF16, 4096, 4096}, {1, 8}, copy_rate);
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    for (const int64_t tokens : {4096, 32768}) {
      for (const int sequences : {1, 8}) {
        MeasureAttention(bench, {dtype, sequences, 1, tokens}, copy_rate);
      }
    }
    for (const int64_t tokens : {512, 8192}) {
      MeasureAttention(bench, {dtype, 1, 512, tokens}, copy_rate);
    }
  }
  for (const int64_t rows : {1, 512}) MeasureRows(bench, rows, copy_rate);
  for (const size_t bytes : {size_t{512} << 10, size_t{4} << 20}) MeasureHostCopies(bench, bytes);
  absl::PrintF("%s\n", bench.Json());
}

}  // namespace
}  // namespace tidepool::kernels::cuda

int main() {
  const auto device = tidepool::kernels::cuda::FindDevice(0);
  if (!device.ok()) {
    std::printf("cuda_bench: %s\n", std::string(device.status().message()).c_str());
    return tidepool::kernels::cuda::kNoGpu;
  }
  tidepool::kernels::cuda::MeasureAll();
  return 0;
}
