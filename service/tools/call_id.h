// CallId: the ids of tool calls.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// Returns the id of call number `call` of a response. It depends only on the arguments. So it is
// the same if the response moves to another worker, and if the request is sent again. `request_id`
// names one response: the names of the choices of one request differ.
std::string CallId(absl::string_view principal, absl::string_view request_id, int32_t call);

// Templates of Mistral accept only ids of 9 letters and digits. Returns such ids unchanged, and a
// hash of others.
std::string ShortCallId(absl::string_view id);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_ID_H_
