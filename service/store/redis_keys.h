// The keys of a session store on Redis (redis_scripts.h).
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

std::string RedisSessionKey(absl::string_view session_id);
std::string RedisLogKey(absl::string_view session_id);
std::string RedisTextKey(absl::string_view session_id);
std::string RedisPrincipalKey(absl::string_view principal);
// Stands for a minute in the place of a session that a call with this mark deleted.
std::string RedisDeletedKey(absl::string_view mark);
// Stands for ten minutes in the place of a session that was deleted or expired: a turn that lost it
// otherwise knows that the server lost it.
std::string RedisGoneKey(absl::string_view session_id);
std::string RedisAllKey();
std::string RedisUpdatedKey();
std::string RedisSequenceKey();
std::string RedisSchemaKey();
// A hash with the fields id, database and commits.
std::string RedisStoreKey();
// A list of lines: what the database was found to have lost.
std::string RedisLossesKey();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_KEYS_H_
