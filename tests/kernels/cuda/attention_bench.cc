// Measures attention and the norms of the CUDA backend on a GPU. Each number is the mean of kCalls
// calls in a row, with the copies of arguments that a real call makes. "host" is the time that the
// calling thread needs. Exits with 77 if there is no GPU.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

constexpr int kNoGpu = 77;
constexpr int kCalls = 20;

struct Shape {
  const char* name;
  int heads, kv_heads, k_dim, v_dim;
  bool values_in_keys = false;
};

// `sequences` sequences with `rows` new rows each, after `context` tokens.
struct Batch {
  int sequences;
  int64_t rows;
  int64_t context;
};

class Bench {
 public:
  explicit Bench(KernelBackend* backend) : backend_(*backend) {}

  // Reports the time of a call, and `bytes` and `macs` per second.
  void Measure(const std::string& name, double bytes, double macs,
               const std::function<void()>& call) {
    call();  // modules are loaded
    CHECK_OK(backend_.Sync());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const auto enqueued = std::chrono::steady_clock::now();
    CHECK_OK(backend_.Sync());
    const auto end = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(end - begin).count() / kCalls;
    const double host = std::chrono::duration<double>(enqueued - begin).count() / kCalls;
    absl::PrintF("%-52s %9.1f us (host %7.1f us) %8.1f GB/s %7.2f TFLOP/s\n", name, seconds * 1e6,
                 host * 1e6, bytes / seconds * 1e-9, 2 * macs / seconds * 1e-12);
    std::fflush(stdout);
  }

  // Device memory with small numbers, until the program ends.
  float* Floats(int64_t count) {
    std::vector<float> values(count);
    uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    auto* data =
        reinterpret_cast<float*>(backend_.memory()->Allocate(values.size() * sizeof(float)));
    CHECK(data != nullptr);
    backend_.CopyIn({reinterpret_cast<const std::byte*>(values.data()), count * sizeof(float)},
                    reinterpret_cast<std::byte*>(data));
    return data;
  }

  void MeasureAttention(const Shape& shape, DType dtype, const Batch& batch) {
    const int64_t blocks = (batch.context + batch.rows) / kKvBlockTokens + 1;
    KvLayer layer = {
        .dtype = dtype, .kv_heads = shape.kv_heads, .k_dim = shape.k_dim, .v_dim = shape.v_dim};
    layer.values_in_keys = shape.values_in_keys;
    const size_t key_bytes = shape.kv_heads * KvHeadBytes(dtype, shape.k_dim);
    const size_t value_bytes =
        shape.values_in_keys ? 0 : shape.kv_heads * KvHeadBytes(dtype, shape.v_dim);
    layer.v_offset = key_bytes;
    layer.block_bytes = key_bytes + value_bytes;
    // The float16 or int8 elements are arbitrary numbers, but not NaN.
    Buffer arena(layer.block_bytes * blocks * batch.sequences, backend_.memory());
    backend_.Zero({reinterpret_cast<float*>(arena.data()), 1,
                   static_cast<int64_t>(arena.size() / sizeof(float))});
    layer.arena = arena.data();
    std::vector<std::vector<int32_t>> tables(batch.sequences);
    std::vector<KvSpan> spans;
    double macs = 0;
    for (int s = 0; s < batch.sequences; ++s) {
      for (int64_t b = 0; b < blocks; ++b) {
        tables[s].push_back(static_cast<int32_t>(b * batch.sequences + s));
      }
      spans.push_back({s * batch.rows, batch.rows, batch.context, tables[s]});
      for (int64_t i = 0; i < batch.rows; ++i) {
        macs +=
            static_cast<double>(batch.context + i + 1) * shape.heads * (shape.k_dim + shape.v_dim);
      }
    }
    const int64_t rows = batch.sequences * batch.rows;
    const int64_t q_cols = int64_t{shape.heads} * shape.k_dim;
    const AttendCall call = {.q = {Floats(rows * q_cols), rows, q_cols},
                             .heads = shape.heads,
                             .scale = 0.1f,
                             .layer = layer,
                             .spans = spans};
    Arena scratch(ActivationBytes(rows, int64_t{shape.heads} * shape.v_dim) +
                      AttendScratchBytes(call, backend_.threads()),
                  backend_.memory());
    const double bytes = static_cast<double>(layer.block_bytes) / kKvBlockTokens *
                         static_cast<double>(batch.context + batch.rows) * batch.sequences;
    Measure(absl::StrCat("attend ", shape.name, " ", DTypeName(dtype), ", ", batch.sequences, " x ",
                         batch.rows, " rows at ", batch.context),
            bytes, macs, [&] {
              scratch.Reset();
              backend_.Attend(call, &scratch);
            });
    CHECK_OK(backend_.Sync());
  }

  void MeasureRows(int64_t rows, int64_t cols) {
    const ConstMatrixView x(Floats(rows * cols), rows, cols);
    const absl::Span<const float> weight(Floats(cols), cols);
    Arena arena(ActivationBytes(rows, cols), backend_.memory());
    const double bytes = 4.0 * static_cast<double>(rows * cols);
    Measure(absl::StrCat("norm ", rows, " x ", cols), bytes, 0, [&] {
      arena.Reset();
      backend_.Norm(x, weight, 1e-5f, &arena);
    });
    Measure(absl::StrCat("quantize ", rows, " x ", cols), bytes, 0, [&] {
      arena.Reset();
      backend_.Quantize(x, &arena);
    });
  }

 private:
  KernelBackend& backend_;
};

void MeasureAll(KernelBackend* backend) {
  Bench bench(backend);
  for (const int64_t rows : {1, 512}) bench.MeasureRows(rows, 4096);
  const Shape llama = {"32/8 heads of 128", 32, 8, 128, 128};
  const Shape smol = {"9/3 heads of 64", 9, 3, 64, 64};
  const Shape mla = {"16/1 heads of 576", 16, 1, 576, 512, true};
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    for (const Shape& shape : {llama, smol, mla}) {
      for (const Batch& batch :
           {Batch{1, 1, 511}, Batch{1, 1, 4095}, Batch{1, 1, 32767}, Batch{32, 1, 4095},
            Batch{1, 4, 4092}, Batch{1, 512, 0}, Batch{1, 512, 7680}}) {
        bench.MeasureAttention(shape, dtype, batch);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::kernels

int main() {
  const auto backend = tidepool::kernels::MakeCudaBackend({});
  if (!backend.ok()) {
    std::printf("attention_bench: %s\n", std::string(backend.status().message()).c_str());
    return tidepool::kernels::kNoGpu;
  }
  std::printf("%s\n", (*backend)->Description().c_str());
  tidepool::kernels::MeasureAll(backend->get());
  return 0;
}
