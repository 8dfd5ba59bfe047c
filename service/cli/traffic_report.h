// TrafficReport: what became of the requests that a load generator sent, as rates and latencies.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_REPORT_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/cli/console.h"

namespace tidepool::service {

// A message of a stream that brought tokens.
struct TokenArrival {
  absl::Duration time;
  int64_t tokens = 0;
};

// One request from its plan to its end. Times are since the run began.
struct RequestOutcome {
  absl::Duration planned;  // when it was to be sent: what it waited for its sender counts too
  absl::Duration sent;     // first
  absl::Duration ended;
  std::optional<int32_t> priority;
  std::vector<TokenArrival> arrivals;
  absl::Status status;  // CANCELLED: it had not ended when the run did
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t retries = 0;
};

// The part of the run that is measured.
struct TrafficWindow {
  absl::Duration begin;
  absl::Duration end;

  bool Holds(absl::Duration time) const { return begin <= time && time < end; }
};

// Thread-compatible. Counts and times to the first token are of the requests that were planned
// within the window; rates and times between tokens of what arrived within it, whenever it was
// asked for.
class TrafficReport {
 public:
  explicit TrafficReport(const TrafficWindow& window) : window_(window) {}

  void Add(const RequestOutcome& outcome);

  // {"requests": {"sent", "accepted", "completed", "refused": {code: n}, "broken": {code: n},
  //   "unfinished", "retries"},
  //  "goodput": {"requests_per_s", "tokens_per_s"},
  //  "first_token_s", "inter_token_s", "sent_late_s": {"p50", "p90", "p99", "max"}, null if none,
  //  "tokens_per_message", "prompt_tokens", "cached_tokens"}
  // Accepted are those that got a token, refused those that ended without one, broken those that
  // ended behind one with an error, unfinished those that waited or ran to the end.
  Json ToJson() const;

 private:
  void Count(const RequestOutcome& outcome);

  const TrafficWindow window_;
  int64_t sent_ = 0;
  int64_t accepted_ = 0;
  int64_t completed_ = 0;
  int64_t unfinished_ = 0;
  int64_t retries_ = 0;
  std::map<std::string, int64_t> refused_;
  std::map<std::string, int64_t> broken_;
  int64_t ended_within_ = 0;
  int64_t tokens_within_ = 0;
  int64_t tokens_ = 0;
  int64_t messages_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  std::vector<float> first_token_s_;
  std::vector<float> inter_token_s_;
  std::vector<float> sent_late_s_;
};

// What ToJson gives, as lines for people.
std::string TrafficText(const Json& report);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_REPORT_H_
