// What a Redis server must be to hold sessions.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "service/store/redis_link.h"

namespace tidepool::service {

// Whether a server may forget what it acknowledged.
enum class RedisSafety : uint8_t {
  kProcess,    // survives restarts; its sudden end can cost the last second or two
  kPower,      // survives kill -9 and its machine's power going
  kUnchecked,  // whatever it does
};

// Done at each connection, since a server can come back with other settings. FAILED_PRECONDITION:
// the server is older than Redis 5, a replica or part of a cluster, holds sessions of a newer
// layout, or is not safe; the message names the setting and its remedy. An empty database is marked
// as ours.
absl::Status CheckRedisServer(RedisLink* link, RedisSafety safety);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
