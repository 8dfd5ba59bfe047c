// The Lua scripts that are the Redis store's transactions, and the keys that they work on.
//
// A session is a hash (its fields, and those of its turns as t<N>:<field>), a string (the log, four
// bytes a token) and, while a turn runs, another string (the text of its answer so far). Sorted
// sets index sessions by creation, all and per principal, and by their last change. Times are the
// server's own, in microseconds, so that fronts need not agree on theirs.
//
// A session has a seal, a SHA-1 over its fields and over chains of its log, text and turns
// (sha1_chain.h). Scripts compare it before they write; what the chains are of is compared by
// whoever reads the whole log (redis_codec.h). A session that an older program has written since
// counts as not sealed, and is sealed by the next write.
//
// A field that older programs neither write nor delete is tied to the request_id that it belongs
// to, which stands behind it in a line of its own: what they left of another turn counts as
// nothing.
//
// Every script answers an array whose first element is a word: OK, or why nothing was written.
// A script that was sent twice because its first answer was lost changes nothing the second time
// and answers OK: appends carry a number that rises within an epoch, others that write a mark of
// their own. Keys of other sessions are made from names inside some scripts, which a Redis cluster
// would not allow.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// The layout that this code reads and writes; the value of SchemaKey().
inline constexpr int64_t kRedisSchemaVersion = 1;

enum class RedisScript : uint8_t {
  kCreate,
  kGet,
  kList,
  kDelete,
  kCount,
  kWrite,
  kBegin,
  kRenew,
  kRelease,
  kAppend,
  kExpire,
  kVerify,
};
inline constexpr int kRedisScripts = 12;

std::string RedisScriptText(RedisScript script);

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

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_
