// Sessions as JSON lines, for export and import by `tidepool sessions`. A file has a header, one
// line for each session, and a last line with the number of sessions. The last line shows whether
// the file is complete.
//
//   {"format":"tidepool-sessions","version":1}
//   {"session_id":"s","principal":"","model":"m","model_digest":"...","kind":"CHAT",
//    "create_time":"2026-01-31T12:00:00.000001+00:00","update_time":...,"token_ids":[1,2],
//    "turns":[{"request_id":"r","start":0,"output_start":1,"end":2,"finish":"STOP",
//              "messages":[{"content":"hi","role":"user"}],"answer":"so"}],
//    "hash":"0123456789abcdef0123456789abcdef"}
//   {"end":true,"sessions":1}
//
// The hash of a session is the XXH3-128 of the bytes of its line before `,"hash":`, in hex. The
// hash is the last member of the line. Files that older programs have written contain no hashes.
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

// Each of these functions returns one line, without a line break.
std::string ExportHead();
std::string SessionToJson(const SessionLogData& session);
std::string ExportEnd(int64_t sessions);

// INVALID_ARGUMENT if the line is not a session, or if CheckSession refuses the session. DATA_LOSS
// if its hash does not match.
absl::StatusOr<SessionLogData> SessionFromJson(absl::string_view line);

inline constexpr size_t kMaxExportLineBytes = size_t{64} << 20;

// Reads a file and passes each intact session to `take`. Only one line at a time is in memory. If
// `take` returns an error, reading ends with that error. Returns the faults: one entry for each
// damaged line, with the line number and the session ids. Lines after a damaged line are still
// read. If the header is invalid, reads no session and returns INVALID_ARGUMENT.
absl::StatusOr<std::vector<std::string>> ReadExport(
    std::istream& in, const std::function<absl::Status(SessionLogData)>& take);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_JSON_H_
