// TrafficPlan: the requests that a load generator sends: when, how long, and with which tokens.
// Equal shapes give equal plans.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_PLAN_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_PLAN_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/time/time.h"

namespace tidepool::service {

struct TrafficShape {
  // Requests a second of a Poisson process; 0: they come when somebody asks for the next.
  double rate = 0;
  // Each request draws one length of each, evenly. Not empty; a prompt is longer than what is
  // shared.
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> output_tokens;
  int64_t shared_prompt_tokens = 0;  // that all prompts begin with
  std::vector<int32_t> priorities;   // as lengths; empty: none is set
  int32_t vocab_size = 0;            // above 0: prompts are random ids below it
  uint64_t seed = 0;
};

struct TrafficRequest {
  absl::Duration arrival;  // since the begin; zero without a rate
  std::vector<int32_t> prompt;
  int64_t output_tokens = 0;
  std::optional<int32_t> priority;
};

// Thread-compatible.
class TrafficPlan {
 public:
  explicit TrafficPlan(TrafficShape shape);

  // The next one, not before the last in time.
  TrafficRequest Next();

 private:
  uint64_t Draw(uint64_t below);
  void AppendTokens(int64_t count, std::vector<int32_t>* tokens);

  const TrafficShape shape_;
  std::mt19937_64 random_;
  std::vector<int32_t> shared_prompt_;
  absl::Duration now_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_PLAN_H_
