// The errors that all stores have in common.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_ERRORS_H_
#define TIDEPOOL_SERVICE_STORE_STORE_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/retry_after.h"
#include "kernels/base/utf8.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Returns text from a damaged store in a form that is always UTF-8, for messages and fields. If the
// text is not valid UTF-8, it is escaped.
inline std::string Utf8Text(absl::string_view bytes) {
  const bool valid = base::ValidUtf8Prefix(bytes) == bytes.size();
  return valid ? std::string(bytes) : absl::CHexEscape(bytes);
}

// Does the reverse of Utf8Text, for ids of damaged sessions. These may contain any bytes.
inline std::string BytesOfText(absl::string_view text) {
  std::string bytes;
  const bool shown = absl::CUnescape(text, &bytes) && Utf8Text(bytes) == text;
  return shown ? bytes : std::string(text);
}

inline absl::Status NoSuchSession(absl::string_view session_id) {
  return absl::NotFoundError(
      absl::StrCat("session '", session_id, "' does not exist; create it with CreateSession"));
}

inline absl::Status SessionIdTaken(absl::string_view session_id) {
  return absl::AlreadyExistsError(
      absl::StrCat("session_id '", session_id, "' is taken; choose another"));
}

inline absl::Status SessionBusy(absl::string_view session_id, absl::string_view request_id) {
  const std::string whose =
      request_id.empty() ? "" : absl::StrCat(" (request_id '", Utf8Text(request_id), "')");
  return base::WithRetryAfter(
      absl::AbortedError(absl::StrCat("session '", session_id, "' is busy with another turn", whose,
                                      "; retry when that turn has ended")),
      base::kUsualRetryAfter);
}

// The caller has used this request_id for a different request.
inline absl::Status AnotherRequest(absl::string_view request_id) {
  return absl::AlreadyExistsError(absl::StrCat(
      "request_id '", request_id,
      "' belongs to a different request; send the same request again, or use another id"));
}

inline absl::Status LeaseLost(absl::string_view session_id) {
  return absl::AbortedError(
      absl::StrCat("session '", session_id, "': another turn took it over; retry"));
}

inline absl::Status SessionChanged(absl::string_view session_id) {
  return absl::AbortedError(
      absl::StrCat("session '", session_id, "' was changed at the same time; retry"));
}

inline absl::Status TooManySessions(int64_t count) {
  return absl::ResourceExhaustedError(
      absl::StrCat("there are already ", count,
                   " sessions, the limit of --max-sessions for each "
                   "principal; delete some with DeleteSession"));
}

inline absl::Status LengthDiffers(absl::string_view session_id, int64_t length, int64_t expected) {
  return absl::AbortedError(
      absl::StrCat("session '", session_id, "': its log has ", length, " tokens, not ", expected));
}

// The stored session does not match its hashes.
inline absl::Status SessionDamaged(absl::string_view session_id, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("session '", Utf8Text(session_id), "' is damaged in the session store: ", what,
                   "; restore a backup of the store, or delete the session"));
}

// Adds the session to an error of SQLite, which only describes the damage to the file.
inline absl::Status WithSession(absl::string_view session_id, absl::Status status) {
  if (!absl::IsDataLoss(status) || absl::StrContains(status.message(), session_id)) return status;
  return SessionDamaged(session_id, status.message());
}

// Returns the list entry of a damaged session. Its other fields are left out, because they may have
// any value.
inline SessionInfo DamagedSession(absl::string_view session_id, const absl::Status& damage) {
  SessionInfo info;
  info.session_id = Utf8Text(session_id);
  info.damage = std::string(damage.message());
  return info;
}

// This text is written after the message about a damaged session.
inline constexpr absl::string_view kNotExpired =
    "It has expired, but --session-ttl does not delete damaged sessions";

inline absl::Status FieldsDamaged(absl::string_view session_id) {
  return SessionDamaged(session_id, "its fields do not match their seal");
}

inline absl::Status SessionMissing(absl::string_view session_id) {
  return SessionDamaged(session_id, "it is in the index, but does not exist");
}

// A session cannot be deleted while a turn holds its lease. So if it is missing, the store has lost
// it.
inline absl::Status SessionGone(absl::string_view session_id) {
  return absl::DataLossError(
      absl::StrCat("session '", session_id,
                   "' disappeared from the session store during a turn and was not deleted: "
                   "the store was emptied, or lost acknowledged writes; restore its backup, or "
                   "create the session again with CreateSession"));
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_ERRORS_H_
