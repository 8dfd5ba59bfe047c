// LogisticModel: an online logistic regression that learns by Newton's method: it keeps the sum of
// its samples' curvatures and steps by that matrix's inverse, so that features may overlap and no
// learning rate has to be chosen.
#ifndef TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
#define TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::moe {

// Samples side by side: feature f of sample i is values[f * stride + i]; of samples up to the next
// multiple of 4 behind the last, finite values are read and not used.
struct Samples {
  const float* values = nullptr;
  int stride = 0;
  int count = 0;
};

// Thread-compatible.
class LogisticModel {
 public:
  explicit LogisticModel(std::vector<double> weights);

  // chances[i]: of outcome 1, for sample i.
  void Predict(const Samples& samples, float* chances) const;

  // outcomes: 0 or 1; chances: as they were predicted. [count]
  void Learn(const Samples& samples, const float* outcomes, const float* chances);

  // Halves the weight of all samples so far.
  void Fade();

 private:
  void Accumulate(const Samples& samples, const float* outcomes, const float* chances);
  void Factorize();
  void Step();

  const int size_;
  std::vector<double> weights_;    // [size]
  std::vector<float> weights32_;   // [size]: the same, for Predict
  std::vector<double> curvature_;  // [size, size], lower half
  // Cholesky's, of curvature_ when its trace was factor_trace_: column by column, and row by row.
  std::vector<double> columns_;   // [size, size]
  std::vector<double> rows_;      // [size, size]
  std::vector<double> gradient_;  // [size]: of the samples at hand
  std::vector<float> scratch_;    // [3, samples]
  double trace_ = 0;
  double factor_trace_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
