// Sessions as the Redis store keeps them: fields of a hash, and back.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/store/redis_link.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Appends names and values of all that a session's hash holds of `session`, its turns included.
void EncodeSession(const SessionLogData& session, std::vector<std::string>* fields);

// `info` is a script's info(), `now_us` the server's time.
SessionInfo DecodeInfo(RedisValue info, int64_t now_us);

// Of one in a kList's answer: a damaged one says so.
SessionInfo DecodeListed(RedisValue listed, int64_t now_us);

// Of a script's whole_log() of session `id`, compared with its hashes. DATA_LOSS: it is damaged.
absl::StatusOr<SessionLogData> DecodeLog(absl::string_view id, RedisValue answer);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CODEC_H_
