// NewtonStep: steps against a gradient by the inverse of a curvature that grows slowly.
#ifndef TIDEPOOL_MOE_POLICY_NEWTON_STEP_H_
#define TIDEPOOL_MOE_POLICY_NEWTON_STEP_H_

#include <vector>

namespace tidepool::moe {

// Thread-compatible. Keeps Cholesky's factor of the curvature that it was given last. Matrices are
// [size, size] by rows, of which the lower half counts.
class NewtonStep {
 public:
  explicit NewtonStep(int size);

  // Whether a curvature of this trace has outgrown the factor; before the first, any has.
  bool IsStale(double trace) const;

  // Requires: positive definite, and of this trace.
  void Factorize(const std::vector<double>& curvature, double trace);

  // The next curvature will be another.
  void Forget() { trace_ = 0; }

  // gradient [size] becomes the curvature's inverse times it.
  void Solve(std::vector<double>* gradient) const;

 private:
  const int size_;
  // Column by column, and row by row.
  std::vector<double> columns_;
  std::vector<double> rows_;
  std::vector<double> inverse_diagonal_;  // [size]
  double trace_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_NEWTON_STEP_H_
