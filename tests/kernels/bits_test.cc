// The rule of equal bits: results do not depend on the ISA, on threads, or on the rest of the
// batch.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

std::unique_ptr<KernelBackend> Make(int threads, Precision precision, Isa isa) {
  return *MakeCpuBackend({threads, precision, isa});
}

constexpr Precision kPrecisions[] = {Precision::kFast, Precision::kExact};

// Tests that run for each ISA, and are skipped if the machine lacks it.
class IsaBitsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const auto backend = MakeCpuBackend({.isa = GetParam()});
    if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  }
};

std::string IsaName(const testing::TestParamInfo<Isa>& test) {
  switch (test.param) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kBest:
      return "best";
  }
  return "";
}

TEST_P(IsaBitsTest, EqualOverIsasAndThreads) {
  for (const Precision precision : kPrecisions) {
    const auto base = Make(1, precision, Isa::kPortable);
    std::vector<std::unique_ptr<KernelBackend>> others;
    for (const int threads : {1, 2, 5}) others.push_back(Make(threads, precision, GetParam()));
    for (const OpCase& test_case : OpCases(precision)) {
      const OpResult expected = test_case.run(*base);
      for (const auto& other : others) {
        const OpResult actual = test_case.run(*other);
        EXPECT_TRUE(SameBits(actual.values, expected.values))
            << test_case.name << ", " << other->Description();
        EXPECT_TRUE(SameBits(actual.int8_form, expected.int8_form))
            << test_case.name << ", " << other->Description();
      }
    }
  }
}

// Each row of a product has the same bits alone and in the batch.
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
            ResultOf(*backend, backend->MatMulGlu(a, {gate.matrix(), up.matrix()}, &arena));
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

constexpr int kHeads = 6;
constexpr int kKvHeads = 2;
constexpr int kThreads = 2;

// A sequence, and the position of its KV.
struct Tokens {
  Tokens(int64_t count, int head_dim, int seed, std::vector<int32_t> places)
      : dim(head_dim),
        q(Noise(seed).Floats(count * kHeads * dim)),
        k(Noise(seed + 1).Floats(count * kKvHeads * dim)),
        v(Noise(seed + 2).Floats(count * kKvHeads * dim)),
        blocks(std::move(places)) {}

  int dim;
  std::vector<float> q, k, v;
  std::vector<int32_t> blocks;
};

// Rows of several sequences, all with heads of the layer's size.
struct AttendBatch {
  void Add(const Tokens& from, int64_t first, int64_t count, int64_t window) {
    const auto append = [&](const std::vector<float>& values, int64_t cols,
                            std::vector<float>* to) {
      to->insert(to->end(), values.begin() + first * cols, values.begin() + (first + count) * cols);
    };
    spans.push_back({rows, count, first, from.blocks, Mask::kCausal, window});
    append(from.q, kHeads * from.dim, &q);
    append(from.k, kKvHeads * from.dim, &k);
    append(from.v, kKvHeads * from.dim, &v);
    rows += count;
  }

  // [rows, kHeads * v_dim]
  std::vector<float> Run(KernelBackend* backend, const KvLayer& layer, float soft_cap,
                         absl::Span<const float> sinks) const {
    const int v_cols = layer.values_in_keys ? 0 : kKvHeads * layer.v_dim;
    backend->StoreKv({k.data(), rows, kKvHeads * layer.k_dim}, {v.data(), rows, v_cols}, layer,
                     spans);
    const AttendCall call = {.q = {q.data(), rows, kHeads * layer.k_dim},
                             .heads = kHeads,
                             .scale = 0.2f,
                             .layer = layer,
                             .spans = spans,
                             .soft_cap = soft_cap,
                             .sinks = sinks};
    Arena arena(ActivationBytes(rows, kHeads * layer.v_dim) + AttendScratchBytes(call, kThreads));
    Spoil(&arena);
    return ResultOf(*backend, backend->Attend(call, &arena)).values;
  }

  int64_t rows = 0;
  std::vector<float> q, k, v;
  std::vector<KvSpan> spans;
};

// Attention of one sequence over several segments of KV. The sequence is prefilled at once, in
// chunks, or token by token; alone, or with another sequence at a different position. `features`
// turns all features of attention on or off.
class Attention {
 public:
  static constexpr int64_t kTokens = 2 * kKvSegmentTokens + 44;

  Attention(DType dtype, int dim, bool features, KernelBackend* backend)
      : backend_(*backend),
        me_(kTokens, dim, 1, Places(2 * (kBlocks - 1), -2)),
        other_(kTokens, dim, 4, Places(1, 2)),
        layer_({.dtype = dtype, .kv_heads = kKvHeads, .k_dim = dim, .v_dim = dim}),
        soft_cap_(features ? 0.7f : 0),
        sinks_(Noise(7).Floats(features ? kHeads : 0)) {
    layer_.values_in_keys = features;
    layer_.v_offset = kKvHeads * KvHeadBytes(dtype, dim);
    layer_.block_bytes = 2 * layer_.v_offset;
  }

  // Computes `chunk` rows of the sequence at a time, together with `stride` rows of the other one.
  // If `stride` is 0, the other sequence is left out.
  std::vector<float> Run(int64_t chunk, int64_t stride, int64_t window) {
    Buffer buffer(2 * kBlocks * layer_.block_bytes);
    std::memset(buffer.data(), 0xff, buffer.size());
    layer_.arena = buffer.data();
    const int64_t cols = kHeads * layer_.v_dim;
    std::vector<float> result;
    int64_t strange = 0;
    for (int64_t first = 0; first < kTokens; first += chunk) {
      AttendBatch batch;
      const int64_t others = std::min(stride, kTokens - strange);
      const bool is_before = first / chunk % 2 == 0;
      if (others > 0 && is_before) batch.Add(other_, strange, others, window);
      const int64_t row = batch.rows;
      const int64_t rows = std::min(chunk, kTokens - first);
      batch.Add(me_, first, rows, window);
      if (others > 0 && !is_before) batch.Add(other_, strange, others, window);
      strange += others;
      const std::vector<float> all = batch.Run(&backend_, layer_, soft_cap_, sinks_);
      result.insert(result.end(), all.begin() + row * cols, all.begin() + (row + rows) * cols);
    }
    return result;
  }

 private:
  static constexpr int kBlocks = kTokens / kKvBlockTokens + 1;

  static std::vector<int32_t> Places(int first, int step) {
    std::vector<int32_t> places(kBlocks);
    for (int i = 0; i < kBlocks; ++i) places[i] = first + step * i;
    return places;
  }

  KernelBackend& backend_;
  const Tokens me_;
  const Tokens other_;
  KvLayer layer_;
  const float soft_cap_;
  const std::vector<float> sinks_;
};

TEST_P(IsaBitsTest, AttentionDependsNeitherOnChunksNorOnOtherSequences) {
  const auto backend = Make(kThreads, Precision::kExact, GetParam());
  using Case = std::tuple<DType, int, bool>;
  for (const auto& [dtype, dim, features] :
       {Case{DType::kF16, 40, false}, Case{DType::kBF16, 40, false}, Case{DType::kF32, 40, false},
        Case{DType::kQ8_0, 64, false}, Case{DType::kF16, 40, true}, Case{DType::kQ8_0, 64, true}}) {
    SCOPED_TRACE(DTypeName(dtype));
    Attention attention(dtype, dim, features, backend.get());
    for (const int64_t window : {0, 20, 150}) {
      const std::vector<float> whole = attention.Run(Attention::kTokens, 0, window);
      for (const int64_t chunk : {1, 7, 32, 64}) {
        for (const int64_t stride : {0, 1, 29}) {
          EXPECT_TRUE(SameBits(attention.Run(chunk, stride, window), whole))
              << "chunks of " << chunk << ", window " << window << ", stride " << stride;
        }
      }
    }
  }
}

// A NaN or an infinity stays in the rows of its sequence, where it is visible.
TEST_P(IsaBitsTest, NansStayInTheirRow) {
  for (const DType dtype : kAllDTypes) {
    const int64_t cols = WholeBlocks(dtype, 64);
    const Weight weight(dtype, 24, cols, 9);
    for (const Precision precision : kPrecisions) {
      const auto backend = Make(2, precision, GetParam());
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

// GroupedFfn computes the same bits as separate ops on each expert's rows.
TEST(BitsTest, GroupedFfnIsItsParts) {
  constexpr int64_t kHidden = 96;
  constexpr int64_t kWidth = 64;
  const Weight gate(DType::kQ4_0, kWidth, kHidden, 1);
  const Weight up(DType::kQ4_0, kWidth, kHidden, 2);
  const Weight down(DType::kQ8_0, kHidden, kWidth, 3);
  const std::vector<float> biases = Noise(5).Floats(2 * kWidth + kHidden);
  FfnWeights weights = {gate.matrix(), up.matrix(), down.matrix()};
  weights.gate_bias = absl::MakeConstSpan(biases).subspan(0, kWidth);
  weights.up_bias = absl::MakeConstSpan(biases).subspan(kWidth, kWidth);
  weights.down_bias = absl::MakeConstSpan(biases).subspan(2 * kWidth);
  weights.glu = {.form = GluForm::kClampedSwiGlu, .limit = 0.8f};
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
      const Activation hidden = backend->MatMulGlu(one, weights, &arena);
      std::vector<float> out(kHidden, NAN);
      const MatMulTarget target = {.weight = weights.down,
                                   .out = MatrixView(out.data(), 1, kHidden),
                                   .bias = weights.down_bias};
      backend->MatMul(hidden, {&target, 1});
      const float* expected = grouped.data() + out_rows[i] * kHidden;
      EXPECT_TRUE(SameBits(out, std::vector<float>(expected, expected + kHidden)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, IsaBitsTest,
                         testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni,
                                         Isa::kBest),
                         IsaName);

}  // namespace
}  // namespace tidepool::kernels
