// Sessions as JSON lines, which `tidepool sessions` exports and imports: a head, one line for each
// session, and an end that tells their number, so that a file that was cut short is noticed.
//
//   {"format":"tidepool-sessions","version":1}
//   {"session_id":"s","principal":"","model":"m","model_digest":"...","kind":"CHAT",
//    "create_time":"2026-01-31T12:00:00.000001+00:00","update_time":...,"token_ids":[1,2],
//    "turns":[{"request_id":"r","start":0,"output_start":1,"end":2,"finish":"STOP",
//              "messages":[{"content":"hi","role":"user"}],"answer":"so"}],
//    "hash":"0123456789abcdef0123456789abcdef"}
//   {"end":true,"sessions":1}
//
// A session's hash is XXH3-128 of its line's bytes before `,"hash":`, in hex. It is last in its
// line. Exports of older programs have none.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_JSON_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_JSON_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// The lines have no line break of their own.
std::string ExportHead();
std::string SessionToJson(const SessionLogData& session);
std::string ExportEnd(int64_t sessions);

// INVALID_ARGUMENT: it is no session, or one that CheckSession refuses; DATA_LOSS: its hash does
// not match.
absl::StatusOr<SessionLogData> SessionFromJson(absl::string_view line);

inline constexpr size_t kMaxExportLineBytes = size_t{64} << 20;

// Reads to the end, one line in memory at a time, and gives each session to `take`, whose errors
// end the reading. INVALID_ARGUMENT and DATA_LOSS name the line and what is wrong with it; sessions
// before it have been given.
absl::Status ReadExport(std::istream& in, const std::function<absl::Status(SessionLogData)>& take);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_JSON_H_
