// One table of cases for every op of every backend. ops_test.cc compares the results with the
// reference. bits_test.cc compares the results of different ISAs, numbers of threads and batches.
// The cases access the memory of a backend only through its copies (operands.h), so the backend may
// be that of a device.
#ifndef TIDEPOOL_TESTS_KERNELS_OP_CASES_H_
#define TIDEPOOL_TESTS_KERNELS_OP_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// The float32 unit roundoff: one rounding changes a value by at most this share of it.
inline constexpr double kRoundoff = 0x1p-24;

// The output of an op, as floats.
struct OpResult {
  std::vector<float> values;
  std::vector<float> int8_form;  // an Activation's quants, scales and sums
};

// One call of one op with fixed inputs.
struct OpCase {
  std::string name;
  std::function<OpResult(KernelBackend&)> run;
  // Returns the allowed difference of each of `values` from the reference. It is derived from the
  // roundings that the op makes, and never tuned.
  std::function<std::vector<double>(const std::vector<float>& reference)> tolerance;
};

// Every op over shapes that include odd ones, for backends of `precision`.
std::vector<OpCase> OpCases(Precision precision);

// Parts of the table, by file.
void AddMatMulCases(Precision precision, std::vector<OpCase>* cases);
void AddRowCases(Precision precision, std::vector<OpCase>* cases);
void AddCopyCases(Precision precision, std::vector<OpCase>* cases);
void AddHeadCases(Precision precision, std::vector<OpCase>* cases);
void AddAttentionCases(Precision precision, std::vector<OpCase>* cases);
void AddExpertCases(Precision precision, std::vector<OpCase>* cases);
void AddRecurrentCases(Precision precision, std::vector<OpCase>* cases);

// Returns the values and the int8 form of an Activation of `backend`. Fails the test if the int8
// form differs from the definition in ops.h.
OpResult ResultOf(KernelBackend& backend, const Activation& activation);

// Compares bits, but all NaNs are equal, because IEEE does not define their payload.
testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Selects cases by their names. If the filter is empty, all cases run.
using CaseFilter = std::function<bool(const std::string& name)>;

// Runs the table on both backends, which have the same precision. Fails the test, with the names of
// the cases, if results have different bits.
void ExpectSameBits(KernelBackend& expected, KernelBackend& actual, const CaseFilter& wanted = {});
// Fails the test at the first case whose values are not within its tolerance of the reference.
void ExpectNear(KernelBackend& reference, KernelBackend& actual, const CaseFilter& wanted = {});

// A tolerance that is a share of each reference value.
std::function<std::vector<double>(const std::vector<float>&)> Relative(double share);

// Returns, for each output of x w^T, the sum over k of |w| |x|, [x.rows, w.rows]. Each rounding of
// a chain is relative to this sum. If the op rounds x to int8, this function does, too. The
// rounding at most doubles the largest term.
class Weight;
std::vector<double> ChainMagnitudes(const Weight& weight, ConstMatrixView x);

// Returns the relative error of a chain over `cols` columns, with a margin for storing the result.
double ChainRoundoff(int64_t cols);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_OP_CASES_H_
