#include "moe/policy/logistic_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// The larger this number, the more samples must agree before the weights change much. Here it takes
// some dozens.
constexpr double kRidge = 32;
constexpr float kMaxLogit = 8;
constexpr float kLog2E = 1.44269504f;

double SumLanes(Vec4 lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

// Returns the sum of a[i] * b[i]. The size of `a` is a multiple of kLanes.
double SumProducts(const std::vector<float>& a, const float* b) {
  Vec4 sum = Vec4{};
  for (size_t i = 0; i < a.size(); i += kLanes) sum += Load4(&a[i]) * Load4(b + i);
  return SumLanes(sum);
}

// Like SumProducts, for four rows of `b`. Faster than four calls.
void SumProducts4(const std::vector<float>& a, const float* b, int stride, double* sums) {
  Vec4 sum0 = Vec4{};
  Vec4 sum1 = Vec4{};
  Vec4 sum2 = Vec4{};
  Vec4 sum3 = Vec4{};
  for (size_t i = 0; i < a.size(); i += kLanes) {
    const Vec4 factor = Load4(&a[i]);
    sum0 += factor * Load4(b + i);
    sum1 += factor * Load4(b + stride + i);
    sum2 += factor * Load4(b + 2 * stride + i);
    sum3 += factor * Load4(b + 3 * stride + i);
  }
  sums[0] = SumLanes(sum0);
  sums[1] = SumLanes(sum1);
  sums[2] = SumLanes(sum2);
  sums[3] = SumLanes(sum3);
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
      shared_(MakePart(weights)),
      groups_(groups, MakePart(std::vector<double>(size_, 0))),
      weights_(weights, groups),
      increment_(shared_.curvature.size(), 0),
      factor_(size_ * size_),
      step_(size_) {}

LogisticModel::Part LogisticModel::MakePart(const std::vector<double>& weights) const {
  return {weights, std::vector<double>((size_ * size_ + 1) / 2 * 2, 0),
          std::vector<double>(size_, 0)};
}

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
      // The values that lanes write after the group's end are overwritten by the next group.
      if (i + kLanes <= samples.count()) {
        Store4(chance, chances + i);
      } else {
        for (int lane = 0; lane < end - i; ++lane) chances[i + lane] = chance[lane];
      }
    }
  }
}

void LogisticModel::Learn(const Samples& samples, const float* outcomes, const float* chances) {
  std::fill(shared_.gradient.begin(), shared_.gradient.end(), 0.0);
  changed_ = {&shared_};
  double shared_forgetting = forgetting_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Part& group = groups_[g];
    if (samples.begins[g] == samples.begins[g + 1]) {
      for (double& value : group.curvature) value *= forgetting_;
      continue;
    }
    SumSamples(samples, static_cast<int>(g), outcomes, chances);
    for (int f = 0; f < size_; ++f) shared_.gradient[f] += group.gradient[f];
    AddCurvature(std::exchange(shared_forgetting, 1), &shared_);
    AddCurvature(forgetting_, &group);
    changed_.push_back(&group);
  }
  for (size_t i = 0; i < changed_.size(); i += Double8::kSize) {
    Step(absl::MakeConstSpan(changed_).subspan(i, Double8::kSize));
  }
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
    groups_[group].gradient[f] = SumProducts(errors_, of_feature);
    for (size_t i = 0; i < products_.size(); i += kLanes) {
      Store4(Load4(&variances_[i]) * Load4(of_feature + i), &products_[i]);
    }
    double* increment = &increment_[f * size_];
    int g = 0;
    for (; g <= f && g + 4 <= size_; g += 4) {
      SumProducts4(products_, values + g * samples.stride, samples.stride, increment + g);
    }
    for (; g <= f; ++g) increment[g] = SumProducts(products_, values + g * samples.stride);
  }
}

void LogisticModel::AddCurvature(double forgetting, Part* part) const {
  for (size_t i = 0; i < increment_.size(); i += 2) {
    double* curvature = &part->curvature[i];
    Store2(Load2(curvature) * forgetting + Load2(&increment_[i]), curvature);
  }
}

// Each of the eight elements belongs to one of the parts. The elements past the last part repeat
// this part.
void LogisticModel::Step(absl::Span<Part* const> parts) {
  std::array<const Part*, Double8::kSize> lanes;
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = parts[std::min(i, parts.size() - 1)];
  const auto gather = [&](const std::vector<double> Part::*values, int at) {
    const auto value = [&](int lane) { return (lanes[lane]->*values)[at]; };
    return Double8{{Double2{value(0), value(1)}, Double2{value(2), value(3)},
                    Double2{value(4), value(5)}, Double2{value(6), value(7)}}};
  };
  // Computes the Cholesky factor L. Its diagonal has the inverses of the elements.
  for (int i = 0; i < size_; ++i) {
    Double8* row = factor_.data() + i * size_;
    for (int j = 0; j <= i; ++j) {
      const Double8* other = factor_.data() + j * size_;
      Double8 rest = gather(&Part::curvature, i * size_ + j);
      if (i == j) rest += kRidge;
      for (int k = 0; k < j; ++k) rest -= row[k] * other[k];
      row[j] = i == j ? InverseRoot8(rest) : rest * other[j];
    }
  }
  for (int i = 0; i < size_; ++i) {
    Double8 rest = gather(&Part::gradient, i);
    for (int k = 0; k < i; ++k) rest -= factor_[i * size_ + k] * step_[k];
    step_[i] = rest * factor_[i * size_ + i];
  }
  for (int i = size_ - 1; i >= 0; --i) {
    Double8 rest = step_[i];
    for (int k = i + 1; k < size_; ++k) rest -= factor_[k * size_ + i] * step_[k];
    step_[i] = rest * factor_[i * size_ + i];
    for (size_t p = 0; p < parts.size(); ++p) parts[p]->weights[i] += step_[i][static_cast<int>(p)];
  }
}

}  // namespace tidepool::moe
