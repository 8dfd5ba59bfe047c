// A repeated turn that is in its session's log but not in this front's cache: another front ran it,
// or it ended long ago.
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
  bool goes_on = false;  // BeginTurn reopened it; otherwise it has ended
  StoredTurn turn;
  std::vector<int32_t> prompt_ids;  // all tokens before its output
  std::vector<int32_t> output_ids;

  int64_t output_size() const { return static_cast<int64_t>(output_ids.size()); }
};

// Removes the turn of this request_id, and all later turns, from `log`. Then `log` is as it was
// when the turn began. Returns nullopt if there is no such turn. FAILED_PRECONDITION if the turn
// was truncated or removed since, so that it cannot be returned again.
absl::StatusOr<std::optional<LoggedTurn>> TakeLoggedTurn(absl::string_view request_id,
                                                         SessionLogData* log);

// Returns the part of `answer` after `received`, the text of the tokens that the client has. The
// request's stop strings show which text was held back then.
std::string TextBehind(absl::string_view answer, absl::string_view received,
                       const v1::Stopping& stopping);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_LOGGED_TURN_H_
