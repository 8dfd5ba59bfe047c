// FrontLimits: how long a front keeps things, and how many.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "service/base/write_timeouts.h"

namespace tidepool::service {

struct FrontLimits {
  // Maximum number of requests, running and waiting, of all principals. Each keeps its own prompt
  // in memory.
  int64_t max_requests = 4096;
  // Memory for all unary responses that are being collected. See ResponseBudget.
  int64_t max_whole_bytes = int64_t{512} << 20;
  absl::Duration session_ttl = absl::InfiniteDuration();  // since the session's last change
  int64_t max_session_tokens = 0;  // of the session's log; 0: the model's context
  // For responses with a request_id: how long a finished response is kept, and how long a running
  // one continues without a client.
  absl::Duration request_ttl = absl::Minutes(10);
  absl::Duration orphan_ttl = absl::Seconds(30);
  // How long a client of a gRPC stream may take for a message. Read once when the front starts.
  absl::Duration taken_within = kTakenWithin;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
