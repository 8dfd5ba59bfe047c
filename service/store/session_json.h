// Sessions as JSON lines, for export and import by `tidepool sessions`: a header, one line for each
// session, and an end line with their number, which detects truncated files.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// The lines do not include the line break.
std::string ExportHead();
std::string SessionToJson(const SessionLogData& session);
std::string ExportEnd(int64_t sessions);

// INVALID_ARGUMENT: the line is not a session, or CheckSession refuses it; DATA_LOSS: its hash does
// not match.
absl::StatusOr<SessionLogData> SessionFromJson(absl::string_view line);

inline constexpr size_t kMaxExportLineBytes = size_t{64} << 20;

// Reads the whole file, one line in memory at a time, and passes each intact session to `take`; an
// error of `take` ends the reading. Returns the faults, one entry for each damaged line, with its
// number and session ids. Later lines are still read. INVALID_ARGUMENT: the header is invalid, and
// nothing was read.
absl::StatusOr<std::vector<std::string>> ReadExport(
    std::istream& in, const std::function<absl::Status(SessionLogData)>& take);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_JSON_H_
