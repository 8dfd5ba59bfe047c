// LogisticModel: an online logistic regression over samples in groups that learns by Newton's
// method: it keeps the sum of its samples' curvatures and steps by that matrix's inverse, so that
// features may overlap and no learning rate has to be chosen.
#ifndef TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
#define TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_

#include <vector>

#include "absl/types/span.h"
#include "moe/policy/newton_step.h"

namespace tidepool::moe {

// Samples side by side: feature f of sample i is values[f * stride + i]. Group g has those from
// begins[g] to begins[g + 1]; behind the last, finite values are read up to 3 samples further and
// not used.
struct Samples {
  const float* values = nullptr;
  int stride = 0;
  absl::Span<const int> begins;  // [groups + 1], from 0

  int count() const { return begins.back(); }
};

// Thread-compatible. A group's weights are those that all groups share and what it deviates from
// them, which is believed as far as its own samples show it: a group of which little has been seen
// behaves as the others do.
class LogisticModel {
 public:
  // weights: shared, to begin with.
  LogisticModel(std::vector<double> weights, int groups);

  // chances[i]: of outcome 1, for sample i.
  void Predict(const Samples& samples, float* chances) const;

  // outcomes: 0 or 1; chances: as they were predicted. [count]
  void Learn(const Samples& samples, const float* outcomes, const float* chances);

  // Halves the weight of all samples so far.
  void Fade();

 private:
  struct Group {
    std::vector<double> deviation;  // [size]
    std::vector<float> weights;     // [size]: with those shared, for Predict
    std::vector<double> curvature;  // [size, size], lower half
    double trace = 0;
    NewtonStep step;
  };

  // What a step is taken from, of a group's samples.
  void SetErrors(const float* outcomes, const float* chances, int count);
  void AddCurvature(const Samples& samples, int g);
  void AddGradient(const Samples& samples, int g);

  void StepShared();
  void StepGroup(Group* group);
  void SetWeights(Group* group);

  const int size_;
  std::vector<double> weights_;  // [size]: shared
  std::vector<Group> groups_;
  NewtonStep step_;                // of the shared weights
  std::vector<double> curvature_;  // [size, size]: of all groups, when last needed
  // Of the samples at hand.
  std::vector<double> gradient_;  // [size]
  std::vector<float> errors_;     // of a group: whole vectors, as are the next three
  std::vector<float> curvatures_;
  std::vector<float> weighted_;
  std::vector<float> chances_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LOGISTIC_MODEL_H_
