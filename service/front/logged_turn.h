// A turn whose request comes again, when its session's log has it and this front does not: the
// front that ran it is gone, or it ended long ago.
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
  bool goes_on = false;  // BeginTurn opened it again; else it has ended
  StoredTurn turn;
  std::vector<int32_t> prompt_ids;  // all that stands before its output
  std::vector<int32_t> output_ids;

  int64_t output_size() const { return static_cast<int64_t>(output_ids.size()); }
};

// Takes the turn of this request_id, and all behind it, out of `log`, which then is as it was when
// the turn began. Nothing: there is no such turn. FAILED_PRECONDITION: it was cut short or cut out
// since, and cannot be given again.
absl::StatusOr<std::optional<LoggedTurn>> TakeLoggedTurn(absl::string_view request_id,
                                                         SessionLogData* log);

// The part of `answer` that a client lacks who has the tokens that decode to `received`. The
// request's stop strings tell what was held back then.
std::string TextBehind(absl::string_view answer, absl::string_view received,
                       const v1::Stopping& stopping);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_LOGGED_TURN_H_
