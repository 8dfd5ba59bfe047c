// MatMulHead: its rows of logits equal MatMul's, and its argmax is that of the logits.
#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr int64_t kOutputs = 205;

void ExpectSame(const ArgMax& actual, const ArgMax& expected) {
  EXPECT_EQ(actual.index, expected.index);
  if (expected.index >= 0) {
    EXPECT_EQ(FloatBits(actual.value), FloatBits(expected.value));
  }
  EXPECT_EQ(actual.unsound, expected.unsound);
  if (expected.unsound >= 0) {
    EXPECT_EQ(std::isnan(actual.unsound_value), std::isnan(expected.unsound_value));
  }
}

class HeadTest : public testing::TestWithParam<std::tuple<int, Isa, DType>> {
 protected:
  // Returns the logits of `rows` rows: the sum of MatMul over their terms.
  static std::vector<float> Logits(KernelBackend& backend, const Activation& x, int terms,
                                   const PackedMatrix& weight, const std::vector<float>& bias) {
    const int64_t rows = x.values.rows / terms;
    std::vector<float> products(x.values.rows * kOutputs);
    const MatMulTarget target = {.weight = weight,
                                 .out = {products.data(), x.values.rows, kOutputs}};
    backend.MatMul(x, {&target, 1});
    for (int64_t i = 0; i < rows * kOutputs; ++i) {
      for (int term = 1; term < terms; ++term) {
        products[i] += products[i + term * rows * kOutputs];
      }
      if (!bias.empty()) products[i] += bias[i % kOutputs];
    }
    products.resize(rows * kOutputs);
    return products;
  }
};

TEST_P(HeadTest, IsMatMulAndItsBest) {
  const auto& [threads, isa, dtype] = GetParam();
  const auto made = MakeCpuBackend({threads, Precision::kFast, isa});
  if (!made.ok()) GTEST_SKIP() << made.status().message();
  const auto& backend = *made;
  const int64_t cols = WholeBlocks(dtype, 64);
  const Weight weight(dtype, kOutputs, cols, 5);
  // These biases make the same outputs of all rows infinite or NaN.
  std::vector<float> bias(kOutputs, 0);
  bias[150] = NAN;
  bias[60] = -INFINITY;
  bias[190] = INFINITY;
  Arena arena(1 << 20);
  for (const int terms : {1, 2}) {
    for (const int64_t rows : {1, 5, 31}) {
      const std::vector<float> values = Noise(rows).Floats(terms * rows * cols);
      for (const bool biased : {false, true}) {
        for (const int64_t argmax_vocab : {kOutputs, int64_t{100}, int64_t{1}}) {
          arena.Reset();
          Spoil(&arena);
          const std::vector<float> added = biased ? bias : std::vector<float>();
          const Activation x = backend->Quantize({values.data(), terms * rows, cols}, &arena);
          const std::vector<float> logits = Logits(*backend, x, terms, weight.matrix(), added);
          const int64_t whole = rows / 2;
          std::vector<float> out(whole * kOutputs, NAN);
          std::vector<ArgMax> best(rows - whole);
          backend->MatMulHead(x,
                              {.weight = weight.matrix(),
                               .bias = added,
                               .terms = terms,
                               .out = {out.data(), whole, kOutputs},
                               .argmax = absl::MakeSpan(best),
                               .argmax_vocab = argmax_vocab},
                              &arena);
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_TRUE(FloatBits(out[i]) == FloatBits(logits[i]) ||
                        (std::isnan(out[i]) && std::isnan(logits[i])))
                << i;
          }
          for (int64_t row = whole; row < rows; ++row) {
            SCOPED_TRACE(row);
            ArgMax expected;
            for (int64_t i = 0; i < argmax_vocab; ++i) {
              AddToArgMax(static_cast<int32_t>(i), logits[row * kOutputs + i], &expected);
            }
            ExpectSame(best[row - whole], expected);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, HeadTest,
                         testing::Combine(testing::Values(1, 3),
                                          testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                                          Isa::kAvx512Vnni),
                                          testing::ValuesIn(kAllDTypes)));

constexpr int64_t kCols = 64;

// With a scale and a soft-cap, the rows of logits and the argmax use the same bits, which are those
// of math.h. The argmax is over the capped outputs: saturated outputs are ties.
TEST_P(HeadTest, ScalesAndCaps) {
  const auto& [threads, isa, dtype] = GetParam();
  const auto made = MakeCpuBackend({threads, Precision::kFast, isa});
  if (!made.ok()) GTEST_SKIP() << made.status().message();
  const int64_t cols = WholeBlocks(dtype, 64);
  const Weight weight(dtype, kOutputs, cols, 5);
  std::vector<float> row = Noise(2).Floats(cols);
  row.insert(row.end(), row.begin(), row.end());  // a second row with the same values
  std::vector<float> bias(kOutputs, 0);
  bias[3] = 7000;
  bias[2] = 6000;
  Arena arena(1 << 20);
  const Activation x = (*made)->Quantize({row.data(), 2, cols}, &arena);
  const std::vector<float> logits = Logits(**made, x, 1, weight.matrix(), bias);
  for (const float cap : {0.0f, 3.0f, 30.0f}) {
    for (const float scale : {1.0f, 0.3f}) {
      std::vector<float> out(kOutputs, NAN);
      std::vector<ArgMax> best(1);
      (*made)->MatMulHead(x,
                          {.weight = weight.matrix(),
                           .bias = bias,
                           .out = {out.data(), 1, kOutputs},
                           .argmax = absl::MakeSpan(best),
                           .argmax_vocab = kOutputs,
                           .scale = scale,
                           .soft_cap = cap},
                          &arena);
      ArgMax expected;
      for (int i = 0; i < kOutputs; ++i) {
        const float scaled = logits[i] * scale;
        const float value = cap == 0 ? scaled : SoftCap(scaled, 1 / cap, cap);
        ASSERT_EQ(FloatBits(out[i]), FloatBits(value)) << i;
        AddToArgMax(i, value, &expected);
      }
      ExpectSame(best[0], expected);
      EXPECT_EQ(best[0].index, cap == 0 ? 3 : 2);
    }
  }
}

// A row of zeros has equal outputs. The lowest index wins, whichever thread computed it.
TEST(HeadTiesTest, TheLowestOfEqualOutputsWins) {
  const auto backend = *MakeCpuBackend({4, Precision::kFast, Isa::kBest});
  const Weight weight(DType::kQ8_0, 5000, kCols, 5);
  const std::vector<float> zeros(kCols, 0);
  Arena arena(1 << 20);
  const Activation x = backend->Quantize({zeros.data(), 1, kCols}, &arena);
  std::vector<float> bias(5000, 0);
  for (const int first : {0, 1, 31, 32, 2600, 4999}) {
    for (int i = 0; i < 5000; ++i) bias[i] = i == first || i % 17 == 16 ? 3.0f : 2.0f;
    std::vector<ArgMax> best(1);
    backend->MatMulHead(x,
                        {.weight = weight.matrix(),
                         .bias = bias,
                         .argmax = absl::MakeSpan(best),
                         .argmax_vocab = 5000},
                        &arena);
    EXPECT_EQ(best[0].index, std::min(first, 16));
  }
}

// Tests the reference itself with exactly known numbers.
TEST(HeadReferenceTest, FindsBestAndUnsound) {
  const auto backend = MakeReferenceBackend(Precision::kExact);
  const Weight weight(DType::kF32, 4, kCols, 5);
  const std::vector<float> zeros(kCols, 0);
  const std::vector<float> bias = {-INFINITY, 4, NAN, 4};
  Arena arena(1 << 16);
  std::vector<ArgMax> best(1);
  HeadTarget target = {
      .weight = weight.matrix(), .bias = bias, .argmax = absl::MakeSpan(best), .argmax_vocab = 4};
  const Activation x = {.values = {zeros.data(), 1, kCols}};
  backend->MatMulHead(x, target, &arena);
  EXPECT_EQ(best[0].index, 1);
  EXPECT_EQ(best[0].value, 4);
  EXPECT_EQ(best[0].unsound, 2);
  target.argmax_vocab = 1;
  backend->MatMulHead(x, target, &arena);
  EXPECT_EQ(best[0].index, -1);
  EXPECT_EQ(best[0].unsound, -1);
}

}  // namespace
}  // namespace tidepool::kernels
