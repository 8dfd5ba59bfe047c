// TrafficPlan: the requests that a load generator sends, with times, lengths and tokens. The same
// shape gives the same plan.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_PLAN_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_PLAN_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/time/time.h"

namespace tidepool::service {

struct TrafficShape {
  // Mean requests per second of a Poisson process. 0: the caller decides when to send.
  double rate = 0;
  // Each request uses a random value of each list, all with the same probability. Requires: the
  // lists are not empty, and each prompt is longer than the shared prefix.
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> output_tokens;
  int64_t shared_prompt_tokens = 0;  // length of the prefix that all prompts share
  std::vector<int32_t> priorities;   // one is used at random; empty: priority is not set
  int32_t vocab_size = 0;            // if not 0, prompts are random ids below this
  uint64_t seed = 0;
};

struct TrafficRequest {
  absl::Duration arrival;  // time since the start; zero if there is no rate
  std::vector<int32_t> prompt;
  int64_t output_tokens = 0;
  std::optional<int32_t> priority;
};

// Thread-compatible.
class TrafficPlan {
 public:
  explicit TrafficPlan(TrafficShape shape);

  // Returns the next request. Arrival times never decrease.
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
