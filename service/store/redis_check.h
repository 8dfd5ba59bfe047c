// Checks the version and the settings of a Redis server, before sessions are stored there.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "service/store/redis_link.h"

namespace tidepool::service {

// What acknowledged writes must survive.
enum class RedisSafety : uint8_t {
  kProcess,    // a restart of the server; a crash may lose the writes of the last second or two
  kPower,      // kill -9 of the server, and a power loss of its machine
  kUnchecked,  // nothing: any server is accepted
};

// Call this function on each new connection, because the server may have restarted with other
// settings. Writes the schema version to an empty database. FAILED_PRECONDITION if the server is
// older than Redis 5, or is a replica or part of a cluster. Also FAILED_PRECONDITION if its
// sessions have a newer schema, or if its settings are not safe enough. The message names the
// setting, and says what to do.
absl::Status CheckRedisServer(RedisLink* link, RedisSafety safety);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CHECK_H_
