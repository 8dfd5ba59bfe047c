// Checks that the data of a session is consistent, for any store.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_

#include "absl/status/status.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// The error INVALID_ARGUMENT says what is wrong, and where. Possible errors: a count is wrong, a
// turn does not begin where it should, a turn does not have the kind of the session, or an id is
// one that no request could have.
absl::Status CheckSession(const SessionLogData& session);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
