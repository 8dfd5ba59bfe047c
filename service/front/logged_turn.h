// LoggedTurn: a turn that a client has sent again. The turn is in the session's log but not in this
// front's cache, because another front ran it, or because it ended long ago.
#ifndef TIDEPOOL_SERVICE_FRONT_LOGGED_TURN_H_
#define TIDEPOOL_SERVICE_FRONT_LOGGED_TURN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/session_store.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct LoggedTurn {
  // the turn was running, and BeginTurn has opened it again; false: it has ended
  bool running = false;
  StoredTurn turn;
  std::vector<int32_t> prompt_ids;  // all tokens of the log before the turn's output
  std::vector<int32_t> output_ids;

  int64_t output_size() const { return static_cast<int64_t>(output_ids.size()); }
};

// Removes the turn with this request_id, and all later turns, from `log`, so that `log` is as it
// was when the turn began. Returns the turn, or nullopt if there is no such turn.
// FAILED_PRECONDITION if the turn was interrupted, or was cut later. Then its response cannot be
// returned again.
absl::StatusOr<std::optional<LoggedTurn>> TakeLoggedTurn(absl::string_view request_id,
                                                         SessionLogData* log);

// Returns the part of `response` that the client has not received. `received` is the text of the
// tokens that the client has. The end of that text may have been held back, because it could have
// been the beginning of a stop string in `stopping`. If so, the result begins with the part that
// was held back.
std::string UnreceivedText(absl::string_view response, absl::string_view received,
                           const v1::Stopping& stopping);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_LOGGED_TURN_H_
