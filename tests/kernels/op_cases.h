// One table of cases that drives every op of every backend: against the reference (ops_test.cc) and
// against itself over ISAs, threads and batch composition (bits_test.cc).
#ifndef TIDEPOOL_TESTS_KERNELS_OP_CASES_H_
#define TIDEPOOL_TESTS_KERNELS_OP_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace tidepool::kernels {

// The float32 unit roundoff: one rounding changes a value by at most this share of it.
inline constexpr double kRoundoff = 0x1p-24;

// What an op wrote, as floats.
struct OpResult {
  std::vector<float> values;
  std::vector<float> int8_form;  // an Activation's quants, scales and sums
};

// One call of one op with fixed inputs.
struct OpCase {
  std::string name;
  std::function<OpResult(KernelBackend&)> run;
  // How far each of `values` may lie from the reference's, given those: derived at each op from the
  // roundings on the way. Never a constant tuned to pass.
  std::function<std::vector<double>(const std::vector<float>& reference)> tolerance;
};

// Every op over shapes that include odd ones, for backends of `precision`.
std::vector<OpCase> OpCases(Precision precision);

// Parts of the table, by file.
void AddMatMulCases(Precision precision, std::vector<OpCase>* cases);
void AddRowCases(Precision precision, std::vector<OpCase>* cases);
void AddAttentionCases(Precision precision, std::vector<OpCase>* cases);
void AddExpertCases(Precision precision, std::vector<OpCase>* cases);

// An Activation's values and int8 form as an OpResult. Fails the test where the int8 form is not
// exactly what ops.h says of the values.
OpResult ResultOf(const Activation& activation, Precision precision);
OpResult ResultOf(ConstMatrixView values);

// A tolerance that is a share of each reference value.
std::function<std::vector<double>(const std::vector<float>&)> Relative(double share);

// sum over k of |w| |x| for each output of x w^T, [x.rows, w.rows]: what each rounding of a chain
// is relative to. x is rounded to int8 first where the op does so, at most doubling the largest
// term.
class Weight;
std::vector<double> ChainMagnitudes(const Weight& weight, ConstMatrixView x);

// Roundings of a chain over `cols` columns, with room for the store.
double ChainRoundoff(int64_t cols);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_OP_CASES_H_
