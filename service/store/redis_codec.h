// Converts sessions to the form in which Redis stores them (the fields of a hash), and back.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/store/redis_link.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Appends the names and values of all fields of the session and of its turns.
void EncodeSession(const SessionLogData& session, std::vector<std::string>* fields);

// `info` is the result of the function info() in a script. `now_us` is the server's time.
SessionInfo DecodeInfo(RedisValue info, int64_t now_us);

// `listed` is one session in the response of kList. If it is damaged, SessionInfo::damage is set.
SessionInfo DecodeListed(RedisValue listed, int64_t now_us);

// `answer` is the result of the function whole_log() in a script. DATA_LOSS if the log does not
// match its hashes.
absl::StatusOr<SessionLogData> DecodeLog(absl::string_view id, RedisValue answer);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
