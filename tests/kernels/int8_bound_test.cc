// The fast mode's products differ from products of the float activations by no more than rounding
// the activations to int8 explains.
//
// With x one activation, amax the largest of its block of 32, u = 2^-24 the roundoff of float32, d
// and q the block's scale and x's int8 (ops.h):
//   d = amax / 127 (1 + e1), q = nearest(x * (127 / amax)), which rounds twice before: to within
//   127 * 2.1 u, so |q - 127 x / amax| <= 1/2 + 127 * 2.1 u. Hence
//   |d q - x| <= amax / 127 * (1/2 + 127 * 2.1 u) + u |d q| <= amax (1/254 + 4 u).
// An output is the sum over k of w d q, with the roundings of a chain, instead of that of w x:
//   |fast - float| <= sum over k of |w| amax (1/254 + 4 u) + ChainRoundoff * sum of |w| |d q|,
// where |d q| <= |x| + amax (1/254 + 4 u), and |w| of types with minima is that of both terms.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr double kInt8Share = 1.0 / 254 + 4 * kRoundoff;

std::vector<float> Product(KernelBackend& backend, const Weight& weight, ConstMatrixView x) {
  Arena arena(4 << 20);
  Spoil(&arena);
  std::vector<float> out(x.rows * weight.matrix().rows, NAN);
  const MatMulTarget target = {.weight = weight.matrix(),
                               .out = MatrixView(out.data(), x.rows, weight.matrix().rows)};
  backend.MatMul(backend.Quantize(x, &arena), {&target, 1});
  return out;
}

// Returns the largest |x| of the block of each element.
std::vector<double> BlockMaxima(ConstMatrixView x) {
  std::vector<double> maxima;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t k = 0; k < x.cols; ++k) {
      const float* block = x.Row(i) + k / kQuantBlock * kQuantBlock;
      const float* largest = std::max_element(
          block, block + kQuantBlock, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
      maxima.push_back(std::fabs(*largest));
    }
  }
  return maxima;
}

// The two terms of the bound for each output [x.rows, weight.rows].
struct Bounds {
  std::vector<double> int8;
  std::vector<double> rounding;
};

Bounds BoundsOf(const Weight& weight, ConstMatrixView x) {
  const std::vector<double> maxima = BlockMaxima(x);
  Bounds bounds;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t r = 0; r < weight.matrix().rows; ++r) {
      std::vector<float> w(x.cols);
      UnpackRow(weight.matrix(), r, absl::MakeSpan(w));
      const std::vector<double> magnitudes = weight.Magnitudes(r);
      double int8 = 0;
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k) {
        const double step = kInt8Share * maxima[i * x.cols + k];
        int8 += std::fabs(w[k]) * step;
        sum += magnitudes[k] * (std::fabs(x.Row(i)[k]) + step);
      }
      bounds.int8.push_back(int8);
      bounds.rounding.push_back(ChainRoundoff(x.cols) * sum);
    }
  }
  return bounds;
}

class Int8BoundTest : public testing::TestWithParam<std::tuple<DType, Isa>> {
 protected:
  void SetUp() override {
    auto backend = MakeCpuBackend({.threads = 2, .isa = std::get<1>(GetParam())});
    if (!backend.ok()) GTEST_SKIP() << backend.status().message();
    fast_ = *std::move(backend);
  }

  DType dtype() const { return std::get<0>(GetParam()); }

  std::unique_ptr<KernelBackend> fast_;
  const std::unique_ptr<KernelBackend> float_ = MakeReferenceBackend(Precision::kExact);
};

TEST_P(Int8BoundTest, ProductsAreThoseOfTheFloatsWithinTheRoundingToInt8) {
  const int64_t cols = WholeBlocks(dtype(), 544);
  const Weight weight(dtype(), 45, cols, 1);
  for (const int64_t rows : {1, 2, 7, 66}) {
    std::vector<float> values = Noise(rows).Floats(rows * cols);
    // Blocks of different sizes, so that a wrong block's scale would be detected.
    for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0f, i / kQuantBlock % 7);
    const ConstMatrixView x(values.data(), rows, cols);
    const std::vector<float> actual = Product(*fast_, weight, x);
    const std::vector<float> expected = Product(*float_, weight, x);
    const Bounds bounds = BoundsOf(weight, x);
    double worst_rounding = 0;  // largest part of the error from rounding sums
    for (size_t i = 0; i < actual.size(); ++i) {
      const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
      ASSERT_LE(error, bounds.int8[i] + bounds.rounding[i]) << rows << " rows, output " << i;
      worst_rounding = std::max(worst_rounding, error / bounds.rounding[i]);
    }
    EXPECT_GT(worst_rounding, 1) << "a float product, which rounds no activation to int8";
  }
}

// All activations are halfway between two int8 values. Each is rounded in the direction that
// increases the first output. So the bound is reached, and a smaller bound would be wrong.
TEST_P(Int8BoundTest, TheBoundIsReached) {
  const int64_t cols = WholeBlocks(dtype(), 64);
  const Weight weight(dtype(), 3, cols, 2);
  std::vector<float> w(cols);
  UnpackRow(weight.matrix(), 0, absl::MakeSpan(w));
  std::vector<float> values(cols);
  for (int64_t k = 0; k < cols; ++k) {
    // An amax of 127 makes the scale 1. Halves are rounded to even: 2.5 down to 2, 3.5 up to 4.
    values[k] = k % kQuantBlock == 0 ? 127.0f : w[k] > 0 ? 3.5f : 2.5f;
  }
  const ConstMatrixView x(values.data(), 1, cols);
  const float actual = Product(*fast_, weight, x)[0];
  const float expected = Product(*float_, weight, x)[0];
  const Bounds bounds = BoundsOf(weight, x);
  const double error = static_cast<double>(actual) - expected;
  EXPECT_LE(error, bounds.int8[0] + bounds.rounding[0]);
  EXPECT_GT(error, 0.8 * bounds.int8[0]);
}

std::vector<DType> QuantisedTypes() {
  std::vector<DType> types;
  std::copy_if(std::begin(kAllDTypes), std::end(kAllDTypes), std::back_inserter(types),
               IsQuantised);
  return types;
}

std::string Name(const testing::TestParamInfo<std::tuple<DType, Isa>>& test) {
  const Isa isa = std::get<1>(test.param);
  return std::string(DTypeName(std::get<0>(test.param))) + "_" +
         (isa == Isa::kPortable ? "portable"
          : isa == Isa::kAvx2   ? "avx2"
          : isa == Isa::kAvx512 ? "avx512"
                                : "avx512vnni");
}

INSTANTIATE_TEST_SUITE_P(All, Int8BoundTest,
                         testing::Combine(testing::ValuesIn(QuantisedTypes()),
                                          testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                                          Isa::kAvx512Vnni)),
                         Name);

}  // namespace
}  // namespace tidepool::kernels
