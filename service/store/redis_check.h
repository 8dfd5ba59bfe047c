// Checks that a Redis server can store sessions.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "service/store/redis_link.h"

namespace tidepool::service {

// What acknowledged writes must survive.
enum class RedisSafety : uint8_t {
  kProcess,    // restarts of the server; a crash can lose the last second or two
  kPower,      // kill -9, and power loss of the machine
  kUnchecked,  // nothing: any server is accepted
};

// Call it at each connection, because a server can come back with other settings. Writes the schema
// version to an empty database. FAILED_PRECONDITION: the server is older than Redis 5, is a replica
// or part of a cluster, has a newer schema, or is not safe. The message names the setting and its
// remedy.
absl::Status CheckRedisServer(RedisLink* link, RedisSafety safety);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
