// Checks that the data of a session is consistent, for any store.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_

#include "absl/status/status.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// The error INVALID_ARGUMENT says what is wrong, and where. For example, a count or a position of a
// turn is wrong, a turn does not match the kind of the session, or an id is invalid.
absl::Status CheckSession(const SessionLogData& session);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
