// Checks the invariants of a session, in any store.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_

#include "absl/status/status.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// INVALID_ARGUMENT says what is wrong and where: a count does not match, turns do not join, turns
// are not of the session's kind, or no request could have an id.
absl::Status CheckSession(const SessionLogData& session);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
