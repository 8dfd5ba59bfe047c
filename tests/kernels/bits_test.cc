// The law of equal bits: over ISAs, threads, and what else is in the batch.
#include <cmath>
#include <cstring>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// Equal bits, where any NaN equals any other: IEEE leaves their payload open.
testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << ", " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (FloatBits(a[i]) != FloatBits(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return testing::AssertionFailure()
             << "element " << i << ": " << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

std::unique_ptr<KernelBackend> Make(int threads, Precision precision, Isa isa) {
  auto backend = MakeCpuBackend({threads, precision, isa});
  return backend.ok() ? *std::move(backend) : nullptr;
}

constexpr Precision kPrecisions[] = {Precision::kFast, Precision::kExact};
constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

// Two threads of every ISA that this machine has, in both precisions.
std::vector<std::unique_ptr<KernelBackend>> AllBackends() {
  std::vector<std::unique_ptr<KernelBackend>> backends;
  for (const Isa isa : kIsas) {
    for (const Precision precision : kPrecisions) {
      auto backend = Make(2, precision, isa);
      if (backend != nullptr) backends.push_back(std::move(backend));
    }
  }
  return backends;
}

TEST(BitsTest, EqualOverIsasAndThreads) {
  for (const Precision precision : kPrecisions) {
    const auto base = Make(1, precision, Isa::kPortable);
    std::vector<std::unique_ptr<KernelBackend>> others;
    for (const Isa isa : kIsas) others.push_back(Make(1, precision, isa));
    for (const Isa isa : kIsas) others.push_back(Make(2, precision, isa));
    others.push_back(Make(5, precision, Isa::kBest));
    for (const OpCase& test_case : OpCases(precision)) {
      const OpResult expected = test_case.run(*base);
      for (const auto& other : others) {
        if (other == nullptr) continue;  // this machine lacks the ISA
        const OpResult actual = test_case.run(*other);
        EXPECT_TRUE(SameBits(actual.values, expected.values))
            << test_case.name << ", " << other->Description();
        EXPECT_TRUE(SameBits(actual.int8_form, expected.int8_form))
            << test_case.name << ", " << other->Description();
      }
    }
  }
}

// Each row of a product, alone, gives the bits that it gives in the batch.
TEST(BitsTest, RowsOfProductsDoNotSeeEachOther) {
  constexpr int64_t kRows = 67;
  constexpr int64_t kOut = 77;
  for (const Precision precision : kPrecisions) {
    const auto backend = Make(2, precision, Isa::kBest);
    for (const DType dtype : kAllDTypes) {
      const int64_t cols = WholeBlocks(dtype, 160);
      const Weight gate(dtype, kOut, cols, 1);
      const Weight up(dtype, kOut, cols, 2);
      const std::vector<float> x = Noise(3).Floats(kRows * cols);
      const std::vector<float> norm = Noise(4).Floats(cols);
      Arena arena(4 << 20);
      const auto run = [&](int64_t first, int64_t rows) {
        arena.Reset();
        Spoil(&arena);
        const Activation a = backend->Norm(ConstMatrixView(x.data() + first * cols, rows, cols),
                                           norm, 1e-5f, &arena);
        std::vector<float> out(rows * kOut, NAN);
        const MatMulTarget target = {.weight = gate.matrix(),
                                     .out = MatrixView(out.data(), rows, kOut)};
        backend->MatMul(a, {&target, 1});
        const OpResult swiglu =
            ResultOf(backend->MatMulSwiGlu(a, gate.matrix(), up.matrix(), &arena), precision);
        std::vector<std::vector<float>> by_row(rows);
        for (int64_t i = 0; i < rows; ++i) {
          by_row[i].assign(out.begin() + i * kOut, out.begin() + (i + 1) * kOut);
          by_row[i].insert(by_row[i].end(), swiglu.values.begin() + i * kOut,
                           swiglu.values.begin() + (i + 1) * kOut);
        }
        return by_row;
      };
      const auto together = run(0, kRows);
      for (const int64_t chunk : {1, 2, 3, 7, 64}) {
        for (int64_t first = 0; first < kRows; first += chunk) {
          const int64_t rows = std::min(chunk, kRows - first);
          const auto apart = run(first, rows);
          for (int64_t i = 0; i < rows; ++i) {
            ASSERT_TRUE(SameBits(apart[i], together[first + i]))
                << DTypeName(dtype) << " row " << first + i << " in chunks of " << chunk;
          }
        }
      }
    }
  }
}

// One sequence prefilled at once, in chunks, and token by token beside a stranger.
TEST(BitsTest, AttentionDoesNotSeeChunks) {
  constexpr int64_t kTokens = 75;
  constexpr int kHeads = 6;
  constexpr int kKvHeads = 2;
  constexpr int kDim = 40;
  const std::vector<float> q = Noise(1).Floats(kTokens * kHeads * kDim);
  const std::vector<float> k = Noise(2).Floats(kTokens * kKvHeads * kDim);
  const std::vector<float> v = Noise(3).Floats(kTokens * kKvHeads * kDim);
  const auto backend = Make(2, Precision::kExact, Isa::kBest);
  for (const int64_t window : {0, 20}) {
    const auto run = [&](int64_t chunk) {
      KvLayer layer;
      layer.kv_heads = kKvHeads;
      layer.k_dim = layer.v_dim = kDim;
      layer.v_offset = 2 * kKvHeads * kDim * kKvBlockTokens;
      layer.block_bytes = 2 * layer.v_offset;
      Buffer buffer(3 * layer.block_bytes);
      std::memset(buffer.data(), 0xff, buffer.size());
      layer.arena = buffer.data();
      const std::vector<int32_t> blocks = {2, 0, 1};
      std::vector<float> result;
      for (int64_t first = 0; first < kTokens; first += chunk) {
        const int64_t rows = std::min(chunk, kTokens - first);
        const KvSpan span = {0, rows, first, blocks, Mask::kCausal, window};
        const auto rows_of = [&](const std::vector<float>& data, int64_t cols) {
          return ConstMatrixView(data.data() + first * cols, rows, cols);
        };
        backend->StoreKv(rows_of(k, kKvHeads * kDim), rows_of(v, kKvHeads * kDim), layer,
                         {&span, 1});
        Arena arena(4 << 20);
        Spoil(&arena);
        const OpResult part = ResultOf(
            backend->Attend(rows_of(q, kHeads * kDim), kHeads, 0.2f, layer, {&span, 1}, &arena),
            Precision::kExact);
        result.insert(result.end(), part.values.begin(), part.values.end());
      }
      return result;
    };
    const std::vector<float> whole = run(kTokens);
    for (const int64_t chunk : {1, 7, 32, 64}) {
      EXPECT_TRUE(SameBits(run(chunk), whole)) << "chunks of " << chunk << ", window " << window;
    }
  }
}

// A NaN or an infinity in one sequence's rows stays in that sequence, and is not hidden there.
TEST(BitsTest, NansStayInTheirRow) {
  for (const DType dtype : kAllDTypes) {
    const int64_t cols = WholeBlocks(dtype, 64);
    const Weight weight(dtype, 24, cols, 9);
    for (const auto& backend : AllBackends()) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> x = Noise(8).Floats(3 * cols);
        const auto run = [&] {
          Arena arena(1 << 20);
          Spoil(&arena);
          std::vector<float> out(3 * 24);
          const MatMulTarget target = {.weight = weight.matrix(),
                                       .out = MatrixView(out.data(), 3, 24)};
          backend->MatMul(backend->Quantize({x.data(), 3, cols}, &arena), {&target, 1});
          return out;
        };
        const std::vector<float> good = run();
        x[cols + 37] = bad;
        const std::vector<float> spoilt = run();
        for (int i = 0; i < 3 * 24; ++i) {
          if (i / 24 == 1) {
            EXPECT_FALSE(std::isfinite(spoilt[i])) << DTypeName(dtype) << " " << i;
          } else {
            EXPECT_EQ(FloatBits(spoilt[i]), FloatBits(good[i])) << DTypeName(dtype) << " " << i;
          }
        }
      }
    }
  }
}

// Grouped experts are the plain ops on each expert's rows.
TEST(BitsTest, GroupedFfnIsItsParts) {
  constexpr int64_t kHidden = 96;
  constexpr int64_t kWidth = 64;
  const Weight gate(DType::kQ4_0, kWidth, kHidden, 1);
  const Weight up(DType::kQ4_0, kWidth, kHidden, 2);
  const Weight down(DType::kQ8_0, kHidden, kWidth, 3);
  const FfnWeights weights = {gate.matrix(), up.matrix(), down.matrix()};
  const std::vector<float> x = Noise(4).Floats(9 * kHidden);
  const std::vector<int32_t> rows = {8, 0, 3, 4, 7};
  const std::vector<int32_t> out_rows = {0, 2, 1, 4, 3};
  for (const Precision precision : kPrecisions) {
    const auto backend = Make(2, precision, Isa::kBest);
    Arena arena(1 << 20);
    const Activation all = backend->Quantize({x.data(), 9, kHidden}, &arena);
    std::vector<float> grouped(5 * kHidden, NAN);
    const ExpertGroup group = {&weights, rows, out_rows};
    backend->GroupedFfn(all, {&group, 1}, {grouped.data(), 5, kHidden}, &arena);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Activation one = backend->Quantize({x.data() + rows[i] * kHidden, 1, kHidden}, &arena);
      const Activation hidden = backend->MatMulSwiGlu(one, weights.gate, weights.up, &arena);
      std::vector<float> out(kHidden, NAN);
      const MatMulTarget target = {.weight = weights.down,
                                   .out = MatrixView(out.data(), 1, kHidden)};
      backend->MatMul(hidden, {&target, 1});
      const float* expected = grouped.data() + out_rows[i] * kHidden;
      EXPECT_TRUE(SameBits(out, std::vector<float>(expected, expected + kHidden)));
    }
  }
}

}  // namespace
}  // namespace tidepool::kernels
