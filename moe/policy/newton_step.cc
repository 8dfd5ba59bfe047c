#include "moe/policy/newton_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tidepool::moe {
namespace {

// The factor is renewed when the trace has grown by this share.
constexpr double kRenewal = 0.02;

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

NewtonStep::NewtonStep(int size)
    : size_(size), columns_(size * size, 0), rows_(size * size, 0), inverse_diagonal_(size, 0) {}

bool NewtonStep::IsStale(double trace) const { return trace > trace_ * (1 + kRenewal); }

void NewtonStep::Factorize(const std::vector<double>& curvature, double trace) {
  trace_ = trace;
  for (int j = 0; j < size_; ++j) {
    double* column = columns_.data() + j * size_;
    for (int i = j; i < size_; ++i) column[i] = curvature[i * size_ + j];
    for (int k = 0; k < j; ++k) {
      const double* before = columns_.data() + k * size_;
      SubtractMultiple(before[j], before, j, size_, column);
    }
    inverse_diagonal_[j] = 1 / std::sqrt(std::max(column[j], 1e-9));
    for (int i = j; i < size_; ++i) column[i] *= inverse_diagonal_[j];
    for (int i = j; i < size_; ++i) rows_[i * size_ + j] = column[i];
  }
}

void NewtonStep::Solve(std::vector<double>* gradient) const {
  double* g = gradient->data();
  for (int i = 0; i < size_; ++i) {
    g[i] *= inverse_diagonal_[i];
    SubtractMultiple(g[i], columns_.data() + i * size_, i + 1, size_, g);
  }
  for (int i = size_ - 1; i >= 0; --i) {
    g[i] *= inverse_diagonal_[i];
    SubtractMultiple(g[i], rows_.data() + i * size_, 0, i, g);
  }
}

}  // namespace tidepool::moe
