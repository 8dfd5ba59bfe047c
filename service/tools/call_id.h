// CallId: the ids of tool calls.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// Returns the id of call number `call` of a response. The id depends only on the three parameters.
// So it does not change if the response moves to another worker, or if the request is sent again.
// `request_id` identifies one response: each choice of a request has a different one.
std::string CallId(absl::string_view principal, absl::string_view request_id, int32_t call);

// Templates of Mistral accept only ids of 9 letters and digits. Returns such an id unchanged, and a
// hash of any other id.
std::string ShortCallId(absl::string_view id);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_
