// FrontLimits: how many requests a front accepts, and how long it keeps sessions and responses.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "service/base/write_timeouts.h"

namespace tidepool::service {

struct FrontLimits {
  // Maximum number of requests of all principals, running and waiting. Each request keeps its own
  // prompt in memory.
  int64_t max_requests = 4096;
  // Maximum memory for all responses that are collected to be sent as one message. See
  // ResponseBudget.
  int64_t max_whole_bytes = int64_t{512} << 20;
  absl::Duration session_ttl = absl::InfiniteDuration();  // counted from the session's last change
  int64_t max_session_tokens = 0;  // maximum length of a session's log; 0: the model's context
  // For responses with a request_id. request_ttl: how long a finished response is kept. orphan_ttl:
  // how long a running response continues if no client is connected.
  absl::Duration request_ttl = absl::Minutes(10);
  absl::Duration orphan_ttl = absl::Seconds(30);
  // Maximum time for a client of a gRPC stream to receive a message. The front reads it only once,
  // when it starts.
  absl::Duration taken_within = kTakenWithin;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
