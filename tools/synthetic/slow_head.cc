#include "tools/synthetic/slow_head.h"

#include <algorithm>
#include <cmath>

namespace tidepool::tools {
namespace {

constexpr int kPositions = 512;
constexpr double kTokens = 24;
constexpr int64_t kMaxPairs = 8;
// Minimum ratio between neighbouring speeds.
constexpr double kSpeedRatio = 1.4;

SlowHead Measure(std::vector<int64_t> pairs, int64_t head_dim, double rope_base) {
  const double largest = std::sqrt(static_cast<double>(head_dim));
  std::vector<double> weights(kPositions);
  double sum = 0;
  for (int distance = 0; distance < kPositions; ++distance) {
    double mean = 0;
    for (const int64_t pair : pairs) {
      const double speed = std::pow(rope_base, -2.0 * static_cast<double>(pair) / head_dim);
      mean += std::cos(distance * speed) / static_cast<double>(pairs.size());
    }
    weights[distance] = std::exp(largest * (mean - 1));
    sum += weights[distance];
  }
  SlowHead head;
  for (int distance = 0; distance < kPositions; ++distance) {
    const double weight = weights[distance] / sum;
    head.squared_weights += weight * weight;
    if (distance > 0) head.correlation += weight * weights[distance - 1] / sum;
  }
  head.correlation /= head.squared_weights;
  head.size = std::sqrt(static_cast<float>(head_dim) / static_cast<float>(pairs.size()));
  head.pairs = std::move(pairs);
  return head;
}

}  // namespace

SlowHead MakeSlowHead(int64_t head_dim, double rope_base) {
  const int64_t all = head_dim / 2;
  const int64_t count = std::clamp<int64_t>(all / 4, 1, kMaxPairs);
  const double ratio = std::pow(rope_base, 2.0 / static_cast<double>(head_dim));
  int64_t step = static_cast<int64_t>(std::ceil(std::log(kSpeedRatio) / std::log(ratio)));
  step = std::clamp<int64_t>(step, 1, (all - 1) / std::max<int64_t>(1, count));
  SlowHead best;
  for (int64_t first = 0; first + (count - 1) * step < all; ++first) {
    std::vector<int64_t> pairs;
    for (int64_t i = 0; i < count; ++i) pairs.push_back(first + i * step);
    SlowHead head = Measure(std::move(pairs), head_dim, rope_base);
    const auto off = [](const SlowHead& h) { return std::abs(1 / h.squared_weights - kTokens); };
    if (best.pairs.empty() || off(head) < off(best)) best = std::move(head);
  }
  return best;
}

}  // namespace tidepool::tools
