// SessionCut: truncates the log of a session at a position, for ForkSession and TruncateSession.
//
// The log keeps the tokens before the position. Turns that begin at or after the position are
// removed. If a turn contains the position, this turn is cut, as if it had been cancelled there.
// Messages cannot be cut. So in a CHAT session, a turn that is cut must keep at least one token of
// its output. Then the kept tokens match the kept messages and the text of the kept response, and
// the next turn can be rendered after these tokens.
//
//   ASSIGN_OR_RETURN(const SessionCut cut, PlanCut(log, position));
//   CutSession(cut, text_of_the_kept_output, &log);
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_CUT_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_CUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/session_store.h"

namespace tidepool::service {

struct SessionCut {
  int64_t position = 0;
  size_t turns = 0;       // number of turns that are kept
  bool last_cut = false;  // the last kept turn is cut at the position
  // for CHAT with last_cut: the response becomes the text of the tokens [text_begin, position)
  int64_t text_begin = 0;
};

// The error INVALID_ARGUMENT names the position, and the nearest positions that are accepted.
absl::StatusOr<SessionCut> PlanCut(const SessionLogData& log, int64_t position);

// `response` is the text of a response, and `kept_text` is the decoded text of the tokens that are
// kept. Returns the beginning of `response` that belongs to these tokens. `kept_text` may end in an
// incomplete character (U+FFFD). If a worker of an earlier release has decoded it, the space at its
// beginning may be missing. It may also contain a stop string that was removed from the end of
// `response`.
std::string CutResponse(absl::string_view response, absl::string_view kept_text);

// `cut` must be the result of PlanCut for the same log. `response` is the new response of the turn
// that is cut; it is ignored if no turn is cut.
void CutSession(const SessionCut& cut, std::string response, SessionLogData* log);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CUT_H_
