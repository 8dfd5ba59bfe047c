#include "tests/kernels/op_cases.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// Checks one block against the definition in ops.h and appends it.
void AppendBlock(const Activation& a, int64_t row, int64_t block, std::vector<float>* out) {
  const float* x = a.values.Row(row) + block * kQuantBlock;
  const int8_t* q = a.quants + row * a.values.cols + block * kQuantBlock;
  const int64_t at = row * (a.values.cols / kQuantBlock) + block;
  float amax = 0;
  bool finite = true;
  for (int k = 0; k < kQuantBlock; ++k) {
    finite = finite && std::isfinite(x[k]);
    amax = std::max(amax, std::fabs(x[k]));
  }
  const bool zero = !finite || amax < kTinyBlock;
  int halves[2] = {0, 0};
  for (int k = 0; k < kQuantBlock; ++k) {
    EXPECT_EQ(q[k], zero ? 0 : std::nearbyint(x[k] * (127 / amax))) << "row " << row;
    halves[k / kHalfBlock] += q[k];
    out->push_back(q[k]);
  }
  const int sum = halves[0] + halves[1];
  if (finite) {
    EXPECT_EQ(a.scales[at], zero ? 0 : amax / 127);
    EXPECT_EQ(a.sums[at], a.scales[at] * static_cast<float>(sum));
  } else {
    EXPECT_TRUE(std::isnan(a.scales[at]) && std::isnan(a.sums[at]));
  }
  for (int h = 0; h < 2; ++h) EXPECT_EQ(a.half_sums[2 * at + h], halves[h]);
  out->insert(out->end(), {a.scales[at], a.sums[at], static_cast<float>(sum)});
}

}  // namespace

OpResult ResultOf(KernelBackend& backend, const Activation& activation) {
  const auto [data, rows, cols, stride] = activation.values;
  OpResult result;
  const std::vector<float> values =
      CopiedOut(backend, data, rows == 0 ? 0 : (rows - 1) * stride + cols);
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = values.begin() + i * stride;
    result.values.insert(result.values.end(), row, row + cols);
  }
  EXPECT_EQ(activation.quants != nullptr, HasInt8Form(backend.precision(), cols));
  if (activation.quants == nullptr) return result;
  const int64_t blocks = rows * (cols / kQuantBlock);
  const std::vector<int8_t> quants = CopiedOut(backend, activation.quants, rows * cols);
  const std::vector<float> scales = CopiedOut(backend, activation.scales, blocks);
  const std::vector<float> sums = CopiedOut(backend, activation.sums, blocks);
  const std::vector<int16_t> half_sums = CopiedOut(backend, activation.half_sums, 2 * blocks);
  const Activation copied = {{result.values.data(), rows, cols},
                             quants.data(),
                             scales.data(),
                             sums.data(),
                             half_sums.data()};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t b = 0; b < cols / kQuantBlock; ++b) AppendBlock(copied, i, b, &result.int8_form);
  }
  return result;
}

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

void ExpectSameBits(KernelBackend& expected, KernelBackend& actual, const CaseFilter& wanted) {
  ASSERT_EQ(expected.precision(), actual.precision());
  for (const OpCase& test_case : OpCases(expected.precision())) {
    if (wanted != nullptr && !wanted(test_case.name)) continue;
    const OpResult left = test_case.run(actual);
    const OpResult right = test_case.run(expected);
    EXPECT_TRUE(SameBits(left.values, right.values))
        << test_case.name << ", " << actual.Description();
    EXPECT_TRUE(SameBits(left.int8_form, right.int8_form))
        << test_case.name << ", " << actual.Description();
  }
}

void ExpectNear(KernelBackend& reference, KernelBackend& actual, const CaseFilter& wanted) {
  ASSERT_EQ(reference.precision(), actual.precision());
  for (const OpCase& test_case : OpCases(reference.precision())) {
    if (wanted != nullptr && !wanted(test_case.name)) continue;
    SCOPED_TRACE(test_case.name);
    const std::vector<float> expected = test_case.run(reference).values;
    const std::vector<float> values = test_case.run(actual).values;
    const std::vector<double> tolerance = test_case.tolerance(expected);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = std::fabs(static_cast<double>(values[i]) - expected[i]);
      const double allowed = i < tolerance.size() ? tolerance[i] : 0;
      // Written so that a NaN fails, and equal values such as infinities pass.
      ASSERT_TRUE(values[i] == expected[i] || error <= allowed)
          << "element " << i << ": " << values[i] << ", expected " << expected[i] << " within "
          << allowed;
    }
  }
}

std::function<std::vector<double>(const std::vector<float>&)> Relative(double share) {
  return [share](const std::vector<float>& reference) {
    std::vector<double> tolerance;
    tolerance.reserve(reference.size());
    for (const float value : reference) tolerance.push_back(share * std::fabs(value));
    return tolerance;
  };
}

std::vector<double> ChainMagnitudes(const Weight& weight, ConstMatrixView x) {
  std::vector<double> result(x.rows * weight.matrix().rows);
  for (int64_t r = 0; r < weight.matrix().rows; ++r) {
    const std::vector<double> magnitudes = weight.Magnitudes(r);
    for (int64_t i = 0; i < x.rows; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k) sum += magnitudes[k] * std::fabs(x.Row(i)[k]);
      result[i * weight.matrix().rows + r] = sum;
    }
  }
  return result;
}

double ChainRoundoff(int64_t cols) {
  // A float chain rounds once per column, and so does dequantisation (kExact: twice). An integer
  // chain rounds three times per block of 32. Then come the reference's own rounding to float32 and
  // a store's addition. Both backends round x to the same int8 values. These may exceed the float's
  // |x| by 1 / 254 of the block's largest value; the factor 2 covers this if the sum has several
  // terms.
  return 2 * (static_cast<double>(cols) + 4) * kRoundoff;
}

std::vector<OpCase> OpCases(Precision precision) {
  std::vector<OpCase> cases;
  AddMatMulCases(precision, &cases);
  AddRowCases(precision, &cases);
  AddCopyCases(precision, &cases);
  AddHeadCases(precision, &cases);
  AddAttentionCases(precision, &cases);
  AddExpertCases(precision, &cases);
  AddRecurrentCases(precision, &cases);
  return cases;
}

}  // namespace tidepool::kernels
