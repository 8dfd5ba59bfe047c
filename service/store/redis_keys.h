// The keys that a session store uses on Redis (see redis_scripts.h).
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

std::string RedisSessionKey(absl::string_view session_id);
std::string RedisLogKey(absl::string_view session_id);
std::string RedisTextKey(absl::string_view session_id);
std::string RedisPrincipalKey(absl::string_view principal);
// This key exists for a minute after a call with this mark has deleted a session. If the same call
// is sent again, it finds the key and returns OK (redis_scripts.h).
std::string RedisDeletedKey(absl::string_view mark);
// This key exists for ten minutes after a session was deleted or has expired. If a turn finds
// neither its session nor this key, the server has lost the session.
std::string RedisGoneKey(absl::string_view session_id);
std::string RedisAllKey();
std::string RedisUpdatedKey();
std::string RedisSequenceKey();
std::string RedisSchemaKey();
// A hash with the fields id, database and commits.
std::string RedisStoreKey();
// A list of lines that say what the database has lost.
std::string RedisLossesKey();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_
