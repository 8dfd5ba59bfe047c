#include "moe/policy/logistic_model.h"

#include <algorithm>
#include <cmath>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// Because of this, weights change little until some dozens of samples agree.
constexpr double kRidge = 32;
constexpr float kMaxLogit = 8;
constexpr float kLog2E = 1.44269504f;

// Returns the sum of a[i] * b[i]. The size of `a` is a multiple of kLanes.
double SumProducts(const std::vector<float>& a, const float* b) {
  Vec4 sum = Vec4{};
  for (size_t i = 0; i < a.size(); i += kLanes) sum += Load4(&a[i]) * Load4(b + i);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

LogisticWeights::LogisticWeights(const std::vector<double>& weights, int groups)
    : size_(static_cast<int>(weights.size())) {
  for (int g = 0; g < groups; ++g) {
    of_groups_.insert(of_groups_.end(), weights.begin(), weights.end());
  }
}

LogisticModel::LogisticModel(const std::vector<double>& weights, int groups, double forgetting)
    : size_(static_cast<int>(weights.size())),
      forgetting_(forgetting),
      shared_{weights, std::vector<double>(size_ * size_, 0)},
      groups_(groups, {std::vector<double>(size_, 0), std::vector<double>(size_ * size_, 0)}),
      weights_(weights, groups),
      gradient_(size_, 0),
      shared_gradient_(size_, 0),
      increment_(size_ * size_, 0),
      factor_(size_ * size_, 0) {}

void LogisticWeights::Predict(const Samples& samples, float* chances) const {
  for (size_t g = 0; g + 1 < samples.begins.size(); ++g) {
    const float* weights = of_groups_.data() + g * size_;
    const int end = samples.begins[g + 1];
    for (int i = samples.begins[g]; i < end; i += kLanes) {
      Vec4 logit = Vec4{};
      for (int f = 0; f < size_; ++f) {
        logit += weights[f] * Load4(samples.values + f * samples.stride + i);
      }
      const Vec4 chance = 1.0f / (1.0f + Exp4(Clamp4(logit, -kMaxLogit, kMaxLogit) * -kLog2E));
      // What lanes after the group's end write is overwritten by the next group.
      if (i + kLanes <= samples.count()) {
        Store4(chance, chances + i);
      } else {
        for (int lane = 0; lane < end - i; ++lane) chances[i + lane] = chance[lane];
      }
    }
  }
}

void LogisticModel::Learn(const Samples& samples, const float* outcomes, const float* chances) {
  std::fill(shared_gradient_.begin(), shared_gradient_.end(), 0.0);
  for (double& value : shared_.curvature) value *= forgetting_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (double& value : groups_[g].curvature) value *= forgetting_;
    if (samples.begins[g] == samples.begins[g + 1]) continue;
    SumSamples(samples, static_cast<int>(g), outcomes, chances);
    for (int f = 0; f < size_; ++f) shared_gradient_[f] += gradient_[f];
    AddCurvature(&shared_);
    AddCurvature(&groups_[g]);
    Step(&gradient_, &groups_[g]);
  }
  Step(&shared_gradient_, &shared_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int f = 0; f < size_; ++f) {
      weights_.of_groups_[g * size_ + f] =
          static_cast<float>(shared_.weights[f] + groups_[g].weights[f]);
    }
  }
}

void LogisticModel::SumSamples(const Samples& samples, int group, const float* outcomes,
                               const float* chances) {
  const int begin = samples.begins[group];
  const int count = samples.begins[group + 1] - begin;
  const float* values = samples.values + begin;
  errors_.assign((count + kLanes - 1) / kLanes * kLanes, 0);
  variances_.assign(errors_.size(), 0);
  products_.resize(errors_.size());
  for (int i = 0; i < count; ++i) {
    const float chance = chances[begin + i];
    errors_[i] = outcomes[begin + i] - chance;
    variances_[i] = std::max(chance * (1 - chance), errors_[i] * errors_[i]);
  }
  for (int f = 0; f < size_; ++f) {
    const float* of_feature = values + f * samples.stride;
    gradient_[f] = SumProducts(errors_, of_feature);
    for (size_t i = 0; i < products_.size(); i += kLanes) {
      Store4(Load4(&variances_[i]) * Load4(of_feature + i), &products_[i]);
    }
    for (int g = 0; g <= f; ++g) {
      increment_[f * size_ + g] = SumProducts(products_, values + g * samples.stride);
    }
  }
}

void LogisticModel::AddCurvature(Part* part) const {
  for (size_t i = 0; i < increment_.size(); ++i) part->curvature[i] += increment_[i];
}

void LogisticModel::Step(std::vector<double>* gradient, Part* part) {
  // Computes the Cholesky factor L. Its diagonal has the inverses of the elements.
  for (int i = 0; i < size_; ++i) {
    double* row = factor_.data() + i * size_;
    for (int j = 0; j <= i; ++j) {
      const double* other = factor_.data() + j * size_;
      double rest = part->curvature[i * size_ + j] + (i == j ? kRidge : 0);
      for (int k = 0; k < j; ++k) rest -= row[k] * other[k];
      row[j] = i == j ? 1 / std::sqrt(rest) : rest * other[j];
    }
  }
  double* step = gradient->data();
  for (int i = 0; i < size_; ++i) {
    for (int k = 0; k < i; ++k) step[i] -= factor_[i * size_ + k] * step[k];
    step[i] *= factor_[i * size_ + i];
  }
  for (int i = size_ - 1; i >= 0; --i) {
    for (int k = i + 1; k < size_; ++k) step[i] -= factor_[k * size_ + i] * step[k];
    step[i] *= factor_[i * size_ + i];
    part->weights[i] += step[i];
  }
}

}  // namespace tidepool::moe
