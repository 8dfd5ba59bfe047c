// How the router of a synthetic model likes its experts: from what is asked to the router's
// weights.
//
// The score of expert e for token t is  liking * z(e) + sqrt(s) * slow(e, t) + sqrt(1 - s) *
// fresh(e, t): z is evenly spread with a deviation of one over the experts, fresh is normal and new
// for each token, slow is normal and a moving average over some thirty tokens. The k largest
// scores are chosen. liking decides the skew alone, then s the persistence.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace tidepool::tools {

struct RoutingTarget {
  // The share of all choices that goes to the layer's most liked quarter of experts.
  std::optional<double> skew;
  // The share of a token's experts that the next token uses too, on average.
  std::optional<double> persistence;

  bool any() const { return skew.has_value() || persistence.has_value(); }
};

struct RoutingMix {
  double liking = 0;
  double slow_share = 0;  // s
  // The mean over tokens of the sum of the squared weights of the chosen experts, the weights being
  // a softmax over the chosen ones.
  double squared_weights = 1;
};

// z of the experts, largest first.
std::vector<double> Likings(int64_t experts);

// Found by simulation, within about 0.005 of what is asked; equal arguments give equal results.
// `slow_correlation` is that of slow between neighbouring tokens. INVALID_ARGUMENT: what no such
// router shows; the message has the range that is possible.
absl::StatusOr<RoutingMix> SolveRouting(int64_t experts, int64_t chosen, double slow_correlation,
                                        const RoutingTarget& target);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_
