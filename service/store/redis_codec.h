// Converts sessions to and from the stored form in Redis, the fields of a hash.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/store/redis_link.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Appends the names and values of all fields of the session and its turns.
void EncodeSession(const SessionLogData& session, std::vector<std::string>* fields);

// `info` is the result of a script's info(). `now_us` is the server's time.
SessionInfo DecodeInfo(RedisValue info, int64_t now_us);

// `listed` is one session in the response of kList. A damaged one has SessionInfo::damage.
SessionInfo DecodeListed(RedisValue listed, int64_t now_us);

// `answer` is the result of a script's whole_log(). DATA_LOSS: it does not match its hashes.
absl::StatusOr<SessionLogData> DecodeLog(absl::string_view id, RedisValue answer);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
