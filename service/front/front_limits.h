// FrontLimits: how long a front keeps what, and how much of it.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "service/base/write_timeouts.h"

namespace tidepool::service {

struct FrontLimits {
  // Running and waiting, of all principals; each holds its own prompt.
  int64_t max_requests = 4096;
  // Of the answers that are collected to be sent as one, all together; see ResponseBudget.
  int64_t max_whole_bytes = int64_t{512} << 20;
  absl::Duration session_ttl = absl::InfiniteDuration();  // since a session's last change
  int64_t max_session_tokens = 0;                         // of its log; 0: the model's context
  // Of answers to requests with a request_id: how long they are kept once they are whole, and how
  // long they go on while their client is gone.
  absl::Duration request_ttl = absl::Minutes(10);
  absl::Duration orphan_ttl = absl::Seconds(30);
  // Of a message to a gRPC client. As the front starts.
  absl::Duration taken_within = kTakenWithin;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_LIMITS_H_
