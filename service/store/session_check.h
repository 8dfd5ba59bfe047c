// What holds of every session, whatever store it is in.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_

#include "absl/status/status.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// INVALID_ARGUMENT says what does not hold and where: counts that differ from what they count,
// turns that do not join, a kind that its turns are not of, ids that no request could have.
absl::Status CheckSession(const SessionLogData& session);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_CHECK_H_
