#include "tools/synthetic/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "tools/synthetic/random_blocks.h"

namespace tidepool::tools {
namespace {

constexpr int64_t kDraws = 1 << 18;  // normal numbers of each kind, over all pairs of tokens
constexpr int64_t kMinPairs = 2000;
constexpr int64_t kMaxPairs = 20000;
constexpr double kLargestLiking = 64;
constexpr int kHalvings = 18;
// A target may be outside of the possible range by at most this value, because the simulation
// differs from the model by about this value.
constexpr double kSlack = 0.005;

struct Shown {
  double skew = 0;
  double persistence = 0;
  double squared_weights = 0;
};

// A fixed set of random pairs of neighbouring tokens. All mixes are compared on the same pairs.
// Thread-compatible.
class Simulation {
 public:
  Simulation(int64_t experts, int64_t chosen, double slow_correlation)
      : experts_(experts),
        chosen_(chosen),
        pairs_(std::clamp(kDraws / experts, kMinPairs, kMaxPairs)),
        likings_(Likings(experts)) {
    Random random(experts * 1000 + chosen);
    for (std::vector<float>* part : {&slow_, &next_slow_, &fresh_, &next_fresh_}) {
      part->resize(pairs_ * experts_);
      for (float& value : *part) value = random.Bell();
    }
    const float kept = static_cast<float>(slow_correlation);
    const float changed = std::sqrt(1 - kept * kept);
    for (size_t i = 0; i < slow_.size(); ++i) {
      next_slow_[i] = kept * slow_[i] + changed * next_slow_[i];
    }
  }

  Shown Run(const RoutingMix& mix) {
    const int64_t quarter = (experts_ + 3) / 4;
    int64_t liked = 0;
    int64_t kept = 0;
    double squared = 0;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      Choose(mix, pair, slow_, fresh_);
      const std::vector<int> before(order_.begin(), order_.begin() + chosen_);
      squared += SquaredWeights();
      for (const int expert : before) liked += expert < quarter ? 1 : 0;
      Choose(mix, pair, next_slow_, next_fresh_);
      for (int64_t i = 0; i < chosen_; ++i) {
        kept += std::find(before.begin(), before.end(), order_[i]) != before.end() ? 1 : 0;
      }
    }
    const double choices = static_cast<double>(pairs_ * chosen_);
    return {.skew = static_cast<double>(liked) / choices,
            .persistence = static_cast<double>(kept) / choices,
            .squared_weights = squared / static_cast<double>(pairs_)};
  }

 private:
  // Moves the experts with the largest scores to the front of order_.
  void Choose(const RoutingMix& mix, int64_t pair, const std::vector<float>& slow,
              const std::vector<float>& fresh) {
    const double slow_part = std::sqrt(mix.slow_share);
    const double fresh_part = std::sqrt(1 - mix.slow_share);
    scores_.resize(experts_);
    for (int64_t e = 0; e < experts_; ++e) {
      scores_[e] = mix.liking * likings_[e] + slow_part * slow[pair * experts_ + e] +
                   fresh_part * fresh[pair * experts_ + e];
    }
    order_.resize(experts_);
    std::iota(order_.begin(), order_.end(), 0);
    std::partial_sort(order_.begin(), order_.begin() + chosen_, order_.end(),
                      [&](int a, int b) { return scores_[a] > scores_[b]; });
  }

  double SquaredWeights() const {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < chosen_; ++i) {
      const double weight = std::exp(scores_[order_[i]] - scores_[order_[0]]);
      sum += weight;
      squares += weight * weight;
    }
    return squares / (sum * sum);
  }

  const int64_t experts_;
  const int64_t chosen_;
  const int64_t pairs_;
  const std::vector<double> likings_;
  std::vector<float> slow_, next_slow_, fresh_, next_fresh_;
  std::vector<double> scores_;
  std::vector<int> order_;
};

struct Search {
  const char* flag;
  double target;
  double RoutingMix::*knob;
  double largest;
  double Shown::*measure;
};

// Finds the value of the parameter, from 0 to its maximum, for which the measured value equals the
// target.
absl::Status Solve(const Search& search, Simulation* simulation, RoutingMix* mix) {
  const auto show = [&](double value) {
    mix->*search.knob = value;
    return simulation->Run(*mix).*search.measure;
  };
  const double least = show(0);
  const double most = show(search.largest);
  if (!(search.target >= least - kSlack && search.target <= most + kSlack)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s must be from %.3f to %.3f with these experts (got %g)", search.flag,
                        least, most, search.target));
  }
  double low = 0;
  double high = search.largest;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (show(middle) < search.target ? low : high) = middle;
  }
  mix->*search.knob = low;
  return absl::OkStatus();
}

}  // namespace

std::vector<double> Likings(int64_t experts) {
  std::vector<double> likings(experts);
  const double n = static_cast<double>(experts);
  // The numbers n - 1, n - 3, ..., 1 - n have a deviation of sqrt((n^2 - 1) / 3).
  const double deviation = experts > 1 ? std::sqrt((n * n - 1) / 3) : 1;
  for (int64_t e = 0; e < experts; ++e) {
    likings[e] = (n - 1 - 2 * static_cast<double>(e)) / deviation;
  }
  return likings;
}

absl::StatusOr<RoutingMix> SolveRouting(int64_t experts, int64_t chosen, double slow_correlation,
                                        const RoutingTarget& target) {
  Simulation simulation(experts, chosen, slow_correlation);
  RoutingMix mix;
  if (target.skew.has_value()) {
    RETURN_IF_ERROR(Solve({.flag = "--skew",
                           .target = *target.skew,
                           .knob = &RoutingMix::liking,
                           .largest = kLargestLiking,
                           .measure = &Shown::skew},
                          &simulation, &mix));
  }
  if (target.persistence.has_value()) {
    RETURN_IF_ERROR(Solve({.flag = "--persistence",
                           .target = *target.persistence,
                           .knob = &RoutingMix::slow_share,
                           .largest = 1,
                           .measure = &Shown::persistence},
                          &simulation, &mix));
  }
  mix.squared_weights = simulation.Run(mix).squared_weights;
  return mix;
}

}  // namespace tidepool::tools
