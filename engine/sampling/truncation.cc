#include "engine/sampling/truncation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace tidepool::engine {
namespace {

// Returns the standard deviation of the logits that are not -infinity. `best` is the largest logit.
double Deviation(absl::Span<const float> logits, float best) {
  // Each lane adds every eighth value, so that additions do not wait for each other.
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  double squares[kLanes] = {};
  double counts[kLanes] = {};
  const auto add = [&](size_t lane, float logit) {
    const bool counted = logit > -std::numeric_limits<float>::infinity();
    const double below = counted ? static_cast<double>(logit) - best : 0;
    sums[lane] += below;
    squares[lane] += below * below;
    counts[lane] += counted ? 1 : 0;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, logits[i + lane]);
  }
  for (size_t lane = 0; i < logits.size(); ++i, ++lane) add(lane, logits[i]);
  for (size_t lane = 1; lane < kLanes; ++lane) {
    sums[0] += sums[lane];
    squares[0] += squares[lane];
    counts[0] += counts[lane];
  }
  const double mean = sums[0] / counts[0];
  return std::sqrt(std::max(squares[0] / counts[0] - mean * mean, 0.0));
}

// Returns the smallest distance, as the bits of its float, such that the candidates up to this
// distance have at least the weight `target`. The bits of non-negative floats have the same order
// as the floats. The bits are found in three steps, from the highest to the lowest. Each step sums
// the weights by the next bits of the distances.
uint32_t FindReach(const std::vector<Candidate>& candidates, const std::vector<float>& distances,
                   double target) {
  uint32_t found = 0;
  // weight of the distances whose high bits are smaller than those of `found`
  double below = 0;
  for (const auto& [shift, bits] : {std::pair(20, 12), {8, 12}, {0, 8}}) {
    double weights[1 << 12] = {};
    const uint64_t high = uint64_t{found} >> (shift + bits);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto key = std::bit_cast<uint32_t>(distances[i]);
      if (uint64_t{key} >> (shift + bits) != high) continue;
      weights[key >> shift & ((1 << bits) - 1)] += candidates[i].value;
    }
    // If rounding keeps the sum below the target, the last distance is chosen.
    uint32_t chosen = 0;
    double before = below;
    double sum = below;
    for (uint32_t bucket = 0; bucket < uint32_t{1} << bits && sum < target; ++bucket) {
      if (weights[bucket] == 0) continue;
      chosen = bucket;
      before = sum;
      sum += weights[bucket];
    }
    found |= chosen << shift;
    below = before;
  }
  return found;
}

}  // namespace

double TotalWeight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.value;
  return total;
}

void KeepTopNSigma(absl::Span<const float> logits, float best, float n,
                   std::vector<Candidate>* candidates) {
  const double least = best - n * Deviation(logits, best);
  std::erase_if(*candidates, [&](const Candidate& c) { return logits[c.id] < least; });
}

void KeepTypical(const Softmax& softmax, float mass, std::vector<Candidate>* candidates,
                 std::vector<float>* distances) {
  // With x = (logit - best) / temperature and the sum W of all weights, ln p = x - ln W, and the
  // entropy is ln W - E[x]. So the distance is |x - E[x]|.
  const double scale = 1.0 / softmax.temperature;
  const auto x_of = [&softmax, scale](const Candidate& c) {
    return (static_cast<double>(softmax.logits[c.id]) - softmax.best) * scale;
  };
  const double total = TotalWeight(*candidates);
  double mean = 0;
  for (const Candidate& c : *candidates) mean += c.value * x_of(c);
  mean /= total;
  distances->resize(candidates->size());
  for (size_t i = 0; i < candidates->size(); ++i) {
    (*distances)[i] = static_cast<float>(std::abs(x_of((*candidates)[i]) - mean));
  }
  const auto reach = std::bit_cast<float>(FindReach(*candidates, *distances, mass * total));
  size_t kept = 0;
  for (size_t i = 0; i < candidates->size(); ++i) {
    if ((*distances)[i] <= reach) (*candidates)[kept++] = (*candidates)[i];
  }
  candidates->resize(kept);
}

void ExcludeTopChoices(float threshold, std::vector<Candidate>* candidates) {
  const double least = threshold * TotalWeight(*candidates);
  const Candidate* last = nullptr;
  for (const Candidate& c : *candidates) {
    if (c.value >= least && (last == nullptr || Better(*last, c))) last = &c;
  }
  if (last == nullptr) return;
  const int32_t kept = last->id;
  std::erase_if(*candidates, [&](const Candidate& c) { return c.value >= least && c.id != kept; });
}

}  // namespace tidepool::engine
