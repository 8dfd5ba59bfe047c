// The Lua scripts of the Redis store, which do what its calls ask for, such as appending tokens, or
// checking a session and the indexes. Each script is one transaction.
//
// A session consists of these keys:
//  - a hash: its fields, and the fields of its turns, which are named t<N>:<field>;
//  - a string: the log, with four bytes for each token;
//  - while a turn runs, another string: the text of the response so far.
// The indexes are sorted sets. Two kinds have the order of creation: one index of all sessions, and
// one for each principal. A third index has the order of the last change. Times are in microseconds
// of the server's clock, so the clocks of fronts may differ.
//
// A session has a seal. This is a SHA-1 over its fields and over the hash chains of its log, text
// and turns (sha1_chain.h). A script checks the seal before it writes. The chains are checked
// whenever the whole log is read (redis_codec.h). If an older program has written a session after
// it was sealed, the session counts as not sealed, and the next write seals it.
//
// The hash `store` identifies the database and counts its changes. With this hash, a front detects
// that a server came back without the last changes, or with another database (redis_witness.h).
//
// Some fields of a turn were added in later releases, and older programs neither write nor delete
// them. So the value of such a field has a second line, which contains the request_id of its turn.
// If the second line names another turn, the field is ignored.
//
// Every script returns an array. The first element is a word: OK, or the reason why nothing was
// written. If the response of a script was lost, the script is sent again. If the first run has
// written, the second run changes nothing and returns OK. To detect this, appends have a number
// that grows within an epoch, and other writes have a unique mark. Some scripts compute the keys of
// sessions from their ids, which is not allowed in a Redis cluster.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_SCRIPTS_H_

#include <cstdint>
#include <string>

#include "service/store/redis_keys.h"

namespace tidepool::service {

// The schema version that this code reads and writes. It is the value of RedisSchemaKey().
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
