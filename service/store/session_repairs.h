// Work on damaged, interrupted and older sessions of a SQLite store.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_

#include "absl/status/status.h"
#include "service/store/sealed_logs.h"
#include "service/store/sealed_sessions.h"

namespace tidepool::service {

// Deletes all rows of a damaged session. DATA_LOSS: a page is damaged, and deleting from it would
// damage another session too. The transaction must be rolled back.
absl::Status DeleteDamaged(const SessionRow& row, const StoreTime& now, SealedSessions* sessions,
                           SealedLogs* logs);

// After a crash: turns that were running end as CANCELLED with what was logged, and no lease is
// held. Damaged sessions do not change, except for their leases.
absl::Status EndInterruptedTurns(SealedSessions* sessions, SealedLogs* logs);

// Computes the hashes of sessions that an older version wrote. A session whose parts do not fit
// together gets none.
absl::Status SealAll(SealedSessions* sessions, SealedLogs* logs);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_
