#include "moe/policy/logistic_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// What a curvature begins with: weights hardly move before some dozens of samples agree. Chosen
// on the design half of tests/moe/replay/trace_kinds.h, whose mean moves by less than 0.001 between
// 16 and 64.
constexpr double kRidge = 32;
// The same of a group's deviation, which takes more to be believed than what all samples show.
// There the mean moves by less than 0.001 between 32 and 128; noise is not mistaken for a
// deviation.
constexpr double kGroupRidge = 128;
constexpr float kMaxLogit = 8;
constexpr float kMinCurvature = 1e-4f;
constexpr float kLog2E = 1.44269504f;

float Sum(Vec4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// The Sum of each.
Vec4 Sums(Vec4 a, Vec4 b, Vec4 c, Vec4 d) {
  const Vec4 ab =
      __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
  const Vec4 cd =
      __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// sums[i] += four[i].
void Add4(Vec4 four, double* sums) {
  using Double4 = double __attribute__((vector_size(32)));
  Double4 sum;
  std::memcpy(&sum, sums, sizeof sum);
  sum += __builtin_convertvector(four, Double4);
  std::memcpy(sums, &sum, sizeof sum);
}

// sums[g] += over samples, of factors and feature g's values, for g < features. Four features at a
// time: an addition need not wait for the one before.
void AddProducts(const std::vector<float>& factors, const float* values, int stride, int features,
                 double* sums) {
  const auto count = static_cast<int>(factors.size());
  int g = 0;
  for (; g + 4 <= features; g += 4) {
    const float* of_four = values + g * stride;
    Vec4 sum0 = Vec4{};
    Vec4 sum1 = Vec4{};
    Vec4 sum2 = Vec4{};
    Vec4 sum3 = Vec4{};
    for (int i = 0; i < count; i += kLanes) {
      const Vec4 factor = Load4(&factors[i]);
      sum0 += factor * Load4(of_four + i);
      sum1 += factor * Load4(of_four + stride + i);
      sum2 += factor * Load4(of_four + 2 * stride + i);
      sum3 += factor * Load4(of_four + 3 * stride + i);
    }
    Add4(Sums(sum0, sum1, sum2, sum3), sums + g);
  }
  for (; g < features; ++g) {
    Vec4 sum = Vec4{};
    for (int i = 0; i < count; i += kLanes) {
      sum += Load4(&factors[i]) * Load4(values + g * stride + i);
    }
    sums[g] += Sum(sum);
  }
}

// Of one group's samples.
void PredictGroup(const std::vector<float>& weights, const float* values, int stride, int count,
                  float* chances) {
  const auto size = static_cast<int>(weights.size());
  for (int i = 0; i < count; i += kLanes) {
    Vec4 logit = Vec4{};
    for (int f = 0; f < size; ++f) logit += weights[f] * Load4(values + f * stride + i);
    const Vec4 chance = 1.0f / (1.0f + Exp4(Clamp4(logit, -kMaxLogit, kMaxLogit) * -kLog2E));
    std::memcpy(chances + i, &chance, sizeof(float) * std::min(kLanes, count - i));
  }
}

}  // namespace

LogisticModel::LogisticModel(std::vector<double> weights, int groups)
    : size_(static_cast<int>(weights.size())),
      weights_(std::move(weights)),
      groups_(groups, {.deviation = std::vector<double>(size_, 0),
                       .weights = std::vector<float>(weights_.begin(), weights_.end()),
                       .curvature = std::vector<double>(size_ * size_, 0),
                       .trace = kGroupRidge * size_,
                       .step = NewtonStep(size_)}),
      step_(size_),
      curvature_(size_ * size_, 0),
      gradient_(size_, 0) {
  for (Group& group : groups_) {
    for (int i = 0; i < size_; ++i) group.curvature[i * size_ + i] = kGroupRidge;
  }
}

void LogisticModel::Predict(const Samples& samples, float* chances) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int begin = samples.begins[g];
    PredictGroup(groups_[g].weights, samples.values + begin, samples.stride,
                 samples.begins[g + 1] - begin, chances + begin);
  }
}

// First the shared weights make their step; what error is left then is the groups'.
void LogisticModel::Learn(const Samples& samples, const float* outcomes, const float* chances) {
  if (samples.count() == 0) return;
  const auto groups = static_cast<int>(groups_.size());
  std::fill(gradient_.begin(), gradient_.end(), 0.0);
  for (int g = 0; g < groups; ++g) {
    const int begin = samples.begins[g];
    SetErrors(outcomes + begin, chances + begin, samples.begins[g + 1] - begin);
    AddCurvature(samples, g);
    AddGradient(samples, g);
  }
  StepShared();
  chances_.resize(samples.count());
  for (int g = 0; g < groups; ++g) {
    const int begin = samples.begins[g];
    const int count = samples.begins[g + 1] - begin;
    SetWeights(&groups_[g]);
    if (count == 0) continue;
    PredictGroup(groups_[g].weights, samples.values + begin, samples.stride, count,
                 chances_.data());
    SetErrors(outcomes + begin, chances_.data(), count);
    std::fill(gradient_.begin(), gradient_.end(), 0.0);
    AddGradient(samples, g);
    StepGroup(&groups_[g]);
    SetWeights(&groups_[g]);
  }
}

// A sample's curvature is p (1 - p), or the square of its error where that is more: a surprise in
// a flat place must not throw the weights about.
void LogisticModel::SetErrors(const float* outcomes, const float* chances, int count) {
  errors_.assign((count + kLanes - 1) / kLanes * kLanes, 0);
  curvatures_.assign(errors_.size(), 0);
  for (int i = 0; i < count; ++i) {
    errors_[i] = outcomes[i] - chances[i];
    curvatures_[i] =
        std::max({chances[i] * (1 - chances[i]), errors_[i] * errors_[i], kMinCurvature});
  }
}

void LogisticModel::AddCurvature(const Samples& samples, int g) {
  const float* values = samples.values + samples.begins[g];
  Group& group = groups_[g];
  weighted_.resize(curvatures_.size());
  for (int f = 0; f < size_; ++f) {
    for (size_t i = 0; i < curvatures_.size(); i += kLanes) {
      Store4(Load4(&curvatures_[i]) * Load4(values + f * samples.stride + i), &weighted_[i]);
    }
    double* row = group.curvature.data() + f * size_;
    group.trace -= row[f];
    AddProducts(weighted_, values, samples.stride, f + 1, row);
    group.trace += row[f];
  }
}

void LogisticModel::AddGradient(const Samples& samples, int g) {
  AddProducts(errors_, samples.values + samples.begins[g], samples.stride, size_, gradient_.data());
}

void LogisticModel::StepShared() {
  // The groups' curvatures have a ridge each; here there is one.
  const double ridges = kGroupRidge * static_cast<double>(groups_.size()) - kRidge;
  double trace = -ridges * size_;
  for (const Group& group : groups_) trace += group.trace;
  if (step_.IsStale(trace)) {
    std::fill(curvature_.begin(), curvature_.end(), 0.0);
    for (const Group& group : groups_) {
      for (size_t i = 0; i < curvature_.size(); ++i) curvature_[i] += group.curvature[i];
    }
    for (int i = 0; i < size_; ++i) curvature_[i * size_ + i] -= ridges;
    step_.Factorize(curvature_, trace);
  }
  step_.Solve(&gradient_);
  for (int i = 0; i < size_; ++i) weights_[i] += gradient_[i];
}

void LogisticModel::StepGroup(Group* group) {
  if (group->step.IsStale(group->trace)) group->step.Factorize(group->curvature, group->trace);
  group->step.Solve(&gradient_);
  for (int i = 0; i < size_; ++i) group->deviation[i] += gradient_[i];
}

void LogisticModel::SetWeights(Group* group) {
  for (int i = 0; i < size_; ++i) {
    group->weights[i] = static_cast<float>(weights_[i] + group->deviation[i]);
  }
}

void LogisticModel::Fade() {
  step_.Forget();
  for (Group& group : groups_) {
    for (double& value : group.curvature) value /= 2;
    for (int i = 0; i < size_; ++i) group.curvature[i * size_ + i] += kGroupRidge / 2;
    group.trace = (group.trace + kGroupRidge * size_) / 2;
    group.step.Forget();
  }
}

}  // namespace tidepool::moe
