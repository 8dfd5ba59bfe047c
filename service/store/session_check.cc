#include "service/store/session_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxIdBytes = 128;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool IsSessionId(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

// Checks one turn. `length` is the length that the log had when the turn began, as far as this is
// known.
absl::Status CheckTurn(const StoredTurn& turn, size_t number, SessionKind kind, int64_t length) {
  if (turn.start < 0 || turn.start > length) {
    return Wrong("turn ", number, " begins at ", turn.start, ", but the log had ", length,
                 " tokens");
  }
  if (turn.output_start < turn.start || turn.end < turn.output_start) {
    return Wrong("turn ", number, " has the positions ", turn.start, ", ", turn.output_start,
                 " and ", turn.end);
  }
  if (turn.finish > TurnFinish::kCancelled) {
    return Wrong("turn ", number, " has an unknown finish reason (", static_cast<int>(turn.finish),
                 ")");
  }
  if (turn.request_id.size() > kMaxIdBytes) {
    return Wrong("turn ", number, " has a request_id of ", turn.request_id.size(), " bytes");
  }
  if (kind == SessionKind::kChat && turn.messages.empty()) {
    return Wrong("turn ", number, " of a chat has no messages");
  }
  if (kind == SessionKind::kTokens && !turn.messages.empty()) {
    return Wrong("turn ", number, " has messages, but the session's kind is TOKENS");
  }
  return absl::OkStatus();
}

absl::Status CheckInfo(const SessionLogData& session) {
  const SessionInfo& info = session.info;
  if (!IsSessionId(info.session_id)) {
    return Wrong("its session_id is not 1 to 128 letters, digits, '-', '_', '.' or ':'");
  }
  if (info.model.empty()) return Wrong("it has no model");
  if (info.kind > SessionKind::kChat) {
    return Wrong("it has an unknown kind (", static_cast<int>(info.kind), ")");
  }
  if (info.create_time > info.update_time)
    return Wrong("its update_time is before its create_time");
  if (info.token_count != static_cast<int64_t>(session.token_ids.size())) {
    return Wrong("its token_count is ", info.token_count, ", but the length of its token_ids is ",
                 session.token_ids.size());
  }
  if (info.turn_count != static_cast<int64_t>(session.turns.size())) {
    return Wrong("its turn_count is ", info.turn_count, ", but the length of its turns is ",
                 session.turns.size());
  }
  if ((info.kind == SessionKind::kNew) != session.turns.empty()) {
    return Wrong("its kind does not fit its ", session.turns.size(), " turns");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSession(const SessionLogData& session) {
  RETURN_IF_ERROR(CheckInfo(session));
  const auto negative = std::find_if(session.token_ids.begin(), session.token_ids.end(),
                                     [](int32_t id) { return id < 0; });
  if (negative != session.token_ids.end()) {
    return Wrong("token ", negative - session.token_ids.begin(), " of its log is ", *negative);
  }
  int64_t length = 0;
  for (size_t i = 0; i < session.turns.size(); ++i) {
    const StoredTurn& turn = session.turns[i];
    RETURN_IF_ERROR(CheckTurn(turn, i, session.info.kind, length));
    if (turn.finish == TurnFinish::kRunning && i + 1 < session.turns.size()) {
      return Wrong("turn ", i, " is still running, but turns follow");
    }
    length = turn.end;
  }
  // The log may be shorter than the end of its last turn. For example, a turn may truncate the log,
  // and so cut the turn before it. If TruncateSession then removes that turn, the turn before it
  // becomes the last one.
  if (session.info.token_count > length) {
    return Wrong("its last turn ends at ", length, ", and its log has ", session.info.token_count,
                 " tokens");
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
