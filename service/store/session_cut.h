// Cuts a session's log at a position, for ForkSession and TruncateSession.
//
// The log keeps its first tokens. Turns that begin at or after the position are removed. A turn
// that contains the position is cut, as if it had been cancelled there. Messages cannot be cut, so
// in a CHAT session the position must be after the input of that turn. Then the kept tokens match
// the kept messages and the text of the kept response, and the next turn is rendered after them.
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
  size_t turns = 0;        // kept turns
  bool last_cut = false;   // the last of them ends at the position, before its end
  int64_t text_begin = 0;  // CHAT and last_cut: the response becomes the text of [begin, position)
};

// INVALID_ARGUMENT names the position and the nearest ones that are accepted.
absl::StatusOr<SessionCut> PlanCut(const SessionLogData& log, int64_t position);

// The part of `answer` that is left when its tokens are cut to those that decode to `kept_text`.
// `kept_text` can end in a broken character (U+FFFD). If a worker of an earlier release decoded it,
// it can lack a space at the front. Decoding does not know which stop string was removed from the
// end.
std::string CutAnswer(absl::string_view answer, absl::string_view kept_text);

// `answer` is the new response of the turn that is cut, if there is one. `cut` is the result of
// PlanCut for the same log.
void CutSession(const SessionCut& cut, std::string answer, SessionLogData* log);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CUT_H_
