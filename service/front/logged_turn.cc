#include "service/front/logged_turn.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/sampling/stop_matcher.h"
#include "service/store/session_cut.h"

namespace tidepool::service {
namespace {

absl::Status CutSince(absl::string_view request_id, const SessionInfo& info) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the turn of request_id '", request_id, "' in session '", info.session_id,
      "' was interrupted or cut, so it cannot be returned again: use another request_id"));
}

}  // namespace

absl::StatusOr<std::optional<LoggedTurn>> TakeLoggedTurn(absl::string_view request_id,
                                                         SessionLogData* log) {
  const auto found =
      std::find_if(log->turns.begin(), log->turns.end(),
                   [request_id](const StoredTurn& turn) { return turn.request_id == request_id; });
  if (found == log->turns.end()) return std::optional<LoggedTurn>();
  LoggedTurn logged = {.running = found->finish == TurnFinish::kRunning, .turn = *found};
  const StoredTurn& turn = logged.turn;
  const bool rewritten = std::any_of(found + 1, log->turns.end(), [&turn](const StoredTurn& later) {
    return later.start < turn.end;
  });
  if (turn.finish == TurnFinish::kCancelled || rewritten || turn.end > log->info.token_count) {
    return CutSince(request_id, log->info);
  }
  const auto begin = log->token_ids.begin();
  logged.prompt_ids.assign(begin, begin + turn.output_start);
  logged.output_ids.assign(begin + turn.output_start, begin + turn.end);
  log->token_ids.resize(turn.start);
  log->turns.erase(found, log->turns.end());
  return logged;
}

std::string UnreceivedText(absl::string_view response, absl::string_view received,
                           const v1::Stopping& stopping) {
  const std::vector<std::string> stops(stopping.stop().begin(), stopping.stop().end());
  engine::StopMatcher matcher(
      stops, stopping.include_stop() ? engine::StopText::kKeep : engine::StopText::kDrop);
  const std::string sent = matcher.Append(CutResponse(response, received)).text;
  return std::string(response.substr(std::min(sent.size(), response.size())));
}

}  // namespace tidepool::service
