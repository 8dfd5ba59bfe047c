// The router of a synthetic model: converts a target for the routing to parameters of the router.
//
// The score of expert e for token t is
//   liking * z(e) + sqrt(s) * slow(e, t) + sqrt(1 - s) * fresh(e, t).
// z is evenly spread over the experts with deviation 1. fresh is normal and independent for each
// token. slow is normal, a moving average over about thirty tokens. The k largest scores are
// chosen. liking alone determines the skew; then s determines the persistence.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace tidepool::tools {

struct RoutingTarget {
  // Share of all choices that the most popular quarter of the layer's experts gets.
  std::optional<double> skew;
  // Average share of a token's experts that the next token also uses.
  std::optional<double> persistence;

  bool any() const { return skew.has_value() || persistence.has_value(); }
};

struct RoutingMix {
  double liking = 0;
  double slow_share = 0;  // s
  // Sum of the squared weights of the chosen experts, averaged over tokens. The weights are a
  // softmax over the chosen experts.
  double squared_weights = 1;
};

// z of the experts, largest first.
std::vector<double> Likings(int64_t experts);

// Finds the parameters by simulation. They are within about 0.005 of the target. The same arguments
// give the same result. `slow_correlation` is the correlation of slow(e, t) and slow(e, t + 1).
// INVALID_ARGUMENT: no such router can reach the target; the message has the possible range.
absl::StatusOr<RoutingMix> SolveRouting(int64_t experts, int64_t chosen, double slow_correlation,
                                        const RoutingTarget& target);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_ROUTING_H_
