// The Lua scripts that implement the Redis store's transactions, and their keys.
//
// A session consists of
//  - a hash: its fields, and those of its turns as t<N>:<field>;
//  - a string: the log, four bytes per token;
//  - while a turn runs, another string: the text of the response so far.
// Sorted sets index sessions by creation (all, and per principal) and by their last change. Times
// are the server's, in microseconds, so the clocks of fronts need not agree.
//
// A session has a seal: a SHA-1 over its fields and over the hash chains of its log, text and turns
// (sha1_chain.h). Scripts check the seal before they write. Whoever reads the whole log checks the
// chains (redis_codec.h). If an older program has written the session since, the session counts as
// not sealed, and the next write seals it.
//
// A hash `store` names the database and counts the changes to it, so that a front notices that a
// server came back without them, or with another database (redis_witness.h).
//
// Older programs neither write nor delete newer fields. So such a field contains the request_id of
// its turn, in a second line; if it belongs to another turn, it is ignored.
//
// Every script returns an array whose first element is a word: OK, or the reason why nothing was
// written. If the reply was lost and a script is sent again, it changes nothing and returns OK. For
// this, appends have a number that rises within an epoch, and other writes have a unique mark. Some
// scripts derive keys of other sessions from names, which a Redis cluster does not allow.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_

#include <cstdint>
#include <string>

#include "service/store/redis_keys.h"

namespace tidepool::service {

// The schema version that this code reads and writes, as the value of RedisSchemaKey().
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

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_
