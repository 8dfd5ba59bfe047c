#include "moe/policy/logistic_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// What the curvature begins with: weights hardly move before some dozens of samples agree. Chosen
// on the design half of tests/moe/replay/trace_kinds.h, whose mean moves by less than 0.001 between
// 16 and 64.
constexpr double kRidge = 32;
constexpr float kMostLogit = 8;
constexpr float kLeastCurvature = 1e-4f;
constexpr float kLog2E = 1.44269504f;
// The factor is renewed when the curvature has grown by this share.
constexpr double kRenewal = 0.02;

float Sum(Vec4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// The Sum of each.
Vec4 Sums(Vec4 a, Vec4 b, Vec4 c, Vec4 d) {
  const Vec4 ab =
      __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
  const Vec4 cd =
      __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// sums[g] += over samples, of factors and feature g's values, for g < features. Four features at a
// time: an addition need not wait for the one before.
void AddProducts(const float* factors, const Samples& samples, int count, int features,
                 double* sums) {
  int g = 0;
  for (; g + 4 <= features; g += 4) {
    const float* values = samples.values + g * samples.stride;
    Vec4 sum0 = Vec4{};
    Vec4 sum1 = Vec4{};
    Vec4 sum2 = Vec4{};
    Vec4 sum3 = Vec4{};
    for (int i = 0; i < count; i += kLanes) {
      const Vec4 factor = Load4(factors + i);
      sum0 += factor * Load4(values + i);
      sum1 += factor * Load4(values + samples.stride + i);
      sum2 += factor * Load4(values + 2 * samples.stride + i);
      sum3 += factor * Load4(values + 3 * samples.stride + i);
    }
    const Vec4 four = Sums(sum0, sum1, sum2, sum3);
    for (int i = 0; i < 4; ++i) sums[g + i] += four[i];
  }
  for (; g < features; ++g) {
    const float* values = samples.values + g * samples.stride;
    Vec4 sum = Vec4{};
    for (int i = 0; i < count; i += kLanes) sum += Load4(factors + i) * Load4(values + i);
    sums[g] += Sum(sum);
  }
}

// to[i] -= factor * from[i], for begin <= i < end; two at a time, none of which waits for another.
void SubtractMultiple(double factor, const double* from, int begin, int end, double* to) {
  using Vec2 = double __attribute__((vector_size(16)));
  int i = begin;
  for (; i + 2 <= end; i += 2) {
    Vec2 values;
    Vec2 others;
    std::memcpy(&values, to + i, sizeof values);
    std::memcpy(&others, from + i, sizeof others);
    values -= factor * others;
    std::memcpy(to + i, &values, sizeof values);
  }
  for (; i < end; ++i) to[i] -= factor * from[i];
}

}  // namespace

LogisticModel::LogisticModel(std::vector<double> weights)
    : size_(static_cast<int>(weights.size())),
      weights_(std::move(weights)),
      weights32_(weights_.begin(), weights_.end()),
      curvature_(size_ * size_, 0),
      columns_(size_ * size_, 0),
      rows_(size_ * size_, 0),
      gradient_(size_, 0) {
  for (int i = 0; i < size_; ++i) curvature_[i * size_ + i] = kRidge;
  trace_ = kRidge * size_;
}

void LogisticModel::Predict(const Samples& samples, float* chances) const {
  for (int i = 0; i < samples.count; i += kLanes) {
    Vec4 logit = Vec4{};
    for (int f = 0; f < size_; ++f) {
      logit += weights32_[f] * Load4(samples.values + f * samples.stride + i);
    }
    const Vec4 chance = 1.0f / (1.0f + Exp4(Clamp4(logit, -kMostLogit, kMostLogit) * -kLog2E));
    std::memcpy(chances + i, &chance, sizeof(float) * std::min(kLanes, samples.count - i));
  }
}

void LogisticModel::Learn(const Samples& samples, const float* outcomes, const float* chances) {
  if (samples.count == 0) return;
  Accumulate(samples, outcomes, chances);
  if (trace_ > factor_trace_ * (1 + kRenewal)) Factorize();
  Step();
}

// A sample's curvature is p (1 - p), or the square of its error where that is more: a surprise in
// a flat place must not throw the weights about.
void LogisticModel::Accumulate(const Samples& samples, const float* outcomes,
                               const float* chances) {
  const int stride = (samples.count + kLanes - 1) / kLanes * kLanes;
  scratch_.assign(3 * stride, 0);
  float* errors = scratch_.data();
  float* curvatures = errors + stride;
  for (int i = 0; i < samples.count; ++i) {
    errors[i] = outcomes[i] - chances[i];
    curvatures[i] =
        std::max({chances[i] * (1 - chances[i]), errors[i] * errors[i], kLeastCurvature});
  }
  float* weighted = curvatures + stride;
  for (int f = 0; f < size_; ++f) {
    const float* values = samples.values + f * samples.stride;
    Vec4 gradient = Vec4{};
    for (int i = 0; i < stride; i += kLanes) {
      const Vec4 value = Load4(values + i);
      gradient += Load4(errors + i) * value;
      Store4(Load4(curvatures + i) * value, weighted + i);
    }
    gradient_[f] = Sum(gradient);
    double* row = curvature_.data() + f * size_;
    trace_ -= row[f];
    AddProducts(weighted, samples, stride, f + 1, row);
    trace_ += row[f];
  }
}

void LogisticModel::Factorize() {
  factor_trace_ = trace_;
  for (int j = 0; j < size_; ++j) {
    double* column = columns_.data() + j * size_;
    for (int i = j; i < size_; ++i) column[i] = curvature_[i * size_ + j];
    for (int k = 0; k < j; ++k) {
      const double* before = columns_.data() + k * size_;
      SubtractMultiple(before[j], before, j, size_, column);
    }
    column[j] = std::sqrt(std::max(column[j], 1e-9));
    for (int i = j + 1; i < size_; ++i) column[i] /= column[j];
    for (int i = j; i < size_; ++i) rows_[i * size_ + j] = column[i];
  }
}

void LogisticModel::Step() {
  for (int i = 0; i < size_; ++i) {
    const double* column = columns_.data() + i * size_;
    gradient_[i] /= column[i];
    SubtractMultiple(gradient_[i], column, i + 1, size_, gradient_.data());
  }
  for (int i = size_ - 1; i >= 0; --i) {
    const double* row = rows_.data() + i * size_;
    gradient_[i] /= row[i];
    SubtractMultiple(gradient_[i], row, 0, i, gradient_.data());
  }
  for (int i = 0; i < size_; ++i) {
    weights_[i] += gradient_[i];
    weights32_[i] = static_cast<float>(weights_[i]);
  }
}

void LogisticModel::Fade() {
  for (double& value : curvature_) value /= 2;
  for (int i = 0; i < size_; ++i) curvature_[i * size_ + i] += kRidge / 2;
  trace_ = (trace_ + kRidge * size_) / 2;
  factor_trace_ = 0;
}

}  // namespace tidepool::moe
