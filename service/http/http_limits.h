// HttpLimits: the limits of an HTTP server.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_LIMITS_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "service/base/write_timeouts.h"

namespace tidepool::service {

// Plain data.
struct HttpLimits {
  int64_t max_connections = 8192;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 32 << 20;
  int64_t max_open_body_bytes = 256 << 20;  // memory for incoming bodies of all connections
  // This part of each body does not count in max_open_body_bytes, so slow senders of long bodies
  // cannot block others. So max_connections times this is needed in addition.
  int64_t small_body_bytes = 32 << 10;
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Minutes(2);
  absl::Duration idle_timeout = absl::Seconds(75);
  absl::Duration write_timeout = kTakenWithin;  // time in which the client takes no byte
  // An older connection accepts no new requests, and closes when it is idle.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_LIMITS_H_
