// LogisticModel: online logistic regression by Newton's method. The samples are divided into
// groups.
#ifndef TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
#define TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_

#include <vector>

#include "absl/types/span.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Samples with features. Feature f of sample i is values[f * stride + i]. The samples of group g
// are begins[g] to begins[g + 1] - 1. Up to three more values after the last sample are read. These
// values must be finite, and do not change results.
struct Samples {
  const float* values = nullptr;
  int stride = 0;
  absl::Span<const int> begins;  // [groups + 1]; the first is 0

  int count() const { return begins.back(); }
};

// The weights of each group, from which chances are predicted. A copy keeps them as they are now.
class LogisticWeights {
 public:
  LogisticWeights(const std::vector<double>& weights, int groups);

  // chances[i] is the predicted chance that the outcome of sample i is 1.
  void Predict(const Samples& samples, float* chances) const;

 private:
  friend class LogisticModel;

  int size_;
  std::vector<float> of_groups_;  // [groups, size]
};

// Thread-compatible. The weights that a group uses are the sum of shared weights and the group's
// own weights. docs/policy.md explains how both are updated:
//   curvature = forgetting * curvature + sum of max(p (1 - p), (outcome - p)^2) x x'
//   weights += (curvature + ridge)^-1 * sum of (outcome - p) x
// So a group with few samples uses nearly the same weights as the others. There is no learning
// rate.
class LogisticModel {
 public:
  // `weights` are the initial shared weights. `forgetting` is in (0, 1], and is applied in each
  // call of Learn.
  LogisticModel(const std::vector<double>& weights, int groups, double forgetting);

  const LogisticWeights& weights() const { return weights_; }

  // All arrays are [count]. `outcomes` are 0 or 1, and `chances` are the ones from
  // LogisticWeights::Predict.
  void Learn(const Samples& samples, const float* outcomes, const float* chances);

 private:
  struct Part {
    std::vector<double> weights;    // [size]
    std::vector<double> curvature;  // [size, size], and padding; only the lower half is used
    std::vector<double> gradient;   // [size]: gradient of one call of Learn
  };

  Part MakePart(const std::vector<double>& weights) const;
  // Sets the gradient of a group, and increment_, from the samples of the group.
  void SumSamples(const Samples& samples, int group, const float* outcomes, const float* chances);
  // Sets the part's curvature to itself times `forgetting`, plus increment_.
  void AddCurvature(double forgetting, Part* part) const;
  // Makes a step of Newton's method for one to eight parts.
  void Step(absl::Span<Part* const> parts);

  const int size_;
  const double forgetting_;
  Part shared_;
  std::vector<Part> groups_;
  LogisticWeights weights_;  // sums of the shared and the groups' own weights
  // Scratch memory of Learn.
  std::vector<Part*> changed_;  // the shared part, and the groups with samples
  // The same shape as Part::curvature: the increment of one group's curvature.
  std::vector<double> increment_;
  std::vector<Double8> factor_;  // [size, size], lower half: the Cholesky factors of the parts
  std::vector<Double8> step_;    // [size]
  std::vector<float> errors_;    // for the samples of one group, in vectors of four
  std::vector<float> variances_;
  std::vector<float> products_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
