// A session's log cut at a position: what ForkSession copies and TruncateSession keeps.
//
// The log keeps its first tokens. Of its turns those go that begin at the position or behind it; a
// turn that begins before and reaches past it is cut, as if it had been cancelled there. A message
// cannot be cut, so in a CHAT session the position lies behind the input of the turn that it cuts;
// then the kept tokens, the kept messages and the text of the kept answer still say the same, and
// the next turn is rendered behind them.
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
  size_t turns = 0;        // that stay
  bool last_cut = false;   // the last of them ends at the position, before its end
  int64_t text_begin = 0;  // CHAT and last_cut: the answer becomes the text of [begin, position)
};

// INVALID_ARGUMENT names the position and the nearest ones that are accepted.
absl::StatusOr<SessionCut> PlanCut(const SessionLogData& log, int64_t position);

// What stays of `answer` when its tokens are cut to those that decode to `kept_text`, where a last
// character may be broken (U+FFFD) and, if a worker of an earlier release decoded it, a space may be
// missing at the front. Decoding does not know which stop string was taken off the end.
std::string CutAnswer(absl::string_view answer, absl::string_view kept_text);

// `answer` is for the turn that is cut, if one is. `cut` is PlanCut's of the same log.
void CutSession(const SessionCut& cut, std::string answer, SessionLogData* log);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CUT_H_
