// TrafficReport: rates and latencies of the requests that a load generator sent.
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

// A message of a stream that has tokens.
struct TokenArrival {
  absl::Duration time;
  int64_t tokens = 0;
};

// One request from its planned start to its end. Times are relative to the start of the run.
struct RequestOutcome {
  // Planned send time. Latency counts from it, even if the request is sent late.
  absl::Duration planned;
  absl::Duration sent;  // send time of the first attempt
  absl::Duration ended;
  std::optional<int32_t> priority;
  std::vector<TokenArrival> arrivals;
  absl::Status status;  // CANCELLED: still running when the run ended
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t retries = 0;
};

// The part of the run that the report covers.
struct TrafficWindow {
  absl::Duration begin;
  absl::Duration end;

  bool Holds(absl::Duration time) const { return begin <= time && time < end; }
};

// Thread-compatible. Counts and times to first token are about the requests that were planned
// within the window. Rates and times between tokens are about the tokens that arrived within it.
class TrafficReport {
 public:
  explicit TrafficReport(const TrafficWindow& window) : window_(window) {}

  void Add(const RequestOutcome& outcome);

  // Returns this object; quantiles without samples are null:
  // {"requests": {"sent", "accepted", "completed", "refused": {code: n}, "broken": {code: n},
  //   "unfinished", "retries"},
  //  "goodput": {"requests_per_s", "tokens_per_s"},
  //  "first_token_s", "inter_token_s", "sent_late_s": {"p50", "p90", "p99", "max"},
  //  "tokens_per_message", "prompt_tokens", "cached_tokens"}
  // An accepted request received a token. A refused one ended without a token. A broken one failed
  // after its first token. An unfinished one was still running when the run ended.
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

// Formats the result of ToJson as text.
std::string TrafficText(const Json& report);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_REPORT_H_
