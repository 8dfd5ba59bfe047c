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
  // Maximum size of a request's body. Servers ignore this default: StartHttp in service/server.cc
  // sets the field from ServerOptions::max_message_bytes (service/server.h). Change the limit
  // there.
  int64_t max_body_bytes = 32 << 20;
  // Maximum memory for the bodies that are being received, over all connections.
  int64_t max_open_body_bytes = 256 << 20;
  // The first small_body_bytes of each body are not counted in max_open_body_bytes. So clients that
  // send long bodies slowly cannot block short requests. These bytes need additional memory: at
  // most small_body_bytes for each connection.
  int64_t small_body_bytes = 32 << 10;
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Minutes(2);
  absl::Duration idle_timeout = absl::Seconds(75);
  // maximum time in which the client takes no byte of the response
  absl::Duration write_timeout = kTakenWithin;
  // A connection that is older than this accepts no new requests, and closes when it is idle.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_LIMITS_H_
