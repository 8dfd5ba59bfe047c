#include "service/store/session_cut.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kBrokenCharacter = "\xEF\xBF\xBD";

absl::Status OutsideLog(const SessionLogData& log, int64_t position) {
  return absl::InvalidArgumentError(absl::StrCat("position is ", position, "; accepted: 0 to ",
                                                 log.info.token_count, ", the length of session '",
                                                 log.info.session_id, "'"));
}

}  // namespace

absl::StatusOr<SessionCut> PlanCut(const SessionLogData& log, int64_t position) {
  const int64_t length = log.info.token_count;
  if (position < 0 || position > length) return OutsideLog(log, position);
  SessionCut cut = {.position = position, .turns = log.turns.size()};
  const bool running = !log.turns.empty() && log.turns.back().finish == TurnFinish::kRunning;
  if (position == length && !running) return cut;
  // Find the last turn that begins at or before the position. Later turns are removed. If this turn
  // begins before the position, it contains the token before the position.
  while (cut.turns > 0 && log.turns[cut.turns - 1].start > position) --cut.turns;
  if (cut.turns == 0) return cut;
  const StoredTurn& turn = log.turns[cut.turns - 1];
  if (turn.start == position && position < length) {
    --cut.turns;
    return cut;
  }
  cut.last_cut = true;
  cut.text_begin = std::min(turn.output_start, position);
  if (log.info.kind != SessionKind::kChat || position > turn.output_start) return cut;
  return absl::InvalidArgumentError(absl::StrCat(
      "position ", position, " is inside the messages of turn ", cut.turns - 1, " of session '",
      log.info.session_id, "', which cannot be cut; accepted nearby: ", turn.start,
      " (before the turn), and ", turn.output_start + 1, " to ", turn.end, " (in its response)"));
}

std::string CutResponse(absl::string_view response, absl::string_view kept_text) {
  while (absl::ConsumeSuffix(&kept_text, kBrokenCharacter)) {
  }
  if (absl::StartsWith(response, kept_text)) return std::string(kept_text);
  // A worker that does not know keep_spaces has left out the first space.
  const absl::string_view body = absl::StripLeadingAsciiWhitespace(response);
  const absl::string_view kept = absl::StripLeadingAsciiWhitespace(kept_text);
  const size_t space = response.size() - body.size();
  if (absl::StartsWith(body, kept)) return std::string(response.substr(0, space + kept.size()));
  if (absl::StartsWith(kept, body)) return std::string(response);
  return std::string(kept_text);
}

void CutSession(const SessionCut& cut, std::string response, SessionLogData* log) {
  log->token_ids.resize(cut.position);
  log->turns.resize(cut.turns);
  if (cut.last_cut) {
    StoredTurn& turn = log->turns.back();
    turn.output_start = std::min(turn.output_start, cut.position);
    turn.end = cut.position;
    turn.finish = TurnFinish::kCancelled;
    turn.response = std::move(response);
  }
  log->info.token_count = cut.position;
  log->info.turn_count = static_cast<int32_t>(cut.turns);
  // The next turn is the first turn again, so it may have any kind.
  if (cut.turns == 0) log->info.kind = SessionKind::kNew;
}

}  // namespace tidepool::service
