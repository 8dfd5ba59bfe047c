// LogisticModel: online logistic regression by Newton's method, over samples in groups.
#ifndef TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
#define TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_

#include <vector>

#include "absl/types/span.h"

namespace tidepool::moe {

// Feature f of sample i is values[f * stride + i]. Group g has samples begins[g] to begins[g + 1].
// After the last sample, up to three more values are read; they must be finite and have no effect.
struct Samples {
  const float* values = nullptr;
  int stride = 0;
  absl::Span<const int> begins;  // [groups + 1], from 0

  int count() const { return begins.back(); }
};

// Thread-compatible. The weights of a group are the sum of shared weights and the group's own. Both
// are updated as in docs/policy.md:
//   curvature = forgetting * curvature + sum of max(p (1 - p), (outcome - p)^2) x x'
//   weights  += (curvature + ridge)^-1 * sum of (outcome - p) x
// So a group with few samples behaves like the others, and there is no learning rate.
class LogisticModel {
 public:
  // weights: initial shared weights. forgetting: in (0, 1], per call of Learn.
  LogisticModel(const std::vector<double>& weights, int groups, double forgetting);

  // chances[i]: of outcome 1, for sample i.
  void Predict(const Samples& samples, float* chances) const;

  // outcomes: 0 or 1; chances: as predicted. [count]
  void Learn(const Samples& samples, const float* outcomes, const float* chances);

 private:
  struct Part {
    std::vector<double> weights;    // [size]
    std::vector<double> curvature;  // [size, size], lower half
  };

  // Sets gradient_ and increment_ from the samples of a group.
  void SumSamples(const Samples& samples, int group, const float* outcomes, const float* chances);
  // Adds increment_ to the part's curvature.
  void AddCurvature(Part* part) const;
  // Newton's step. `gradient` is overwritten.
  void Step(std::vector<double>* gradient, Part* part);

  const int size_;
  const double forgetting_;
  Part shared_;
  std::vector<Part> groups_;
  std::vector<std::vector<float>> sums_;  // [groups][size]: shared and own weights, for Predict
  // Scratch of Learn.
  std::vector<double> gradient_;         // [size]: of one group
  std::vector<double> shared_gradient_;  // [size]
  std::vector<double> increment_;        // [size, size], lower half: of one group's curvature
  std::vector<double> factor_;           // [size, size], lower half: Cholesky's
  std::vector<float> errors_;            // of one group's samples, in whole vectors
  std::vector<float> variances_;
  std::vector<float> products_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
