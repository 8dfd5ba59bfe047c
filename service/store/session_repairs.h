// Functions for sessions of a SQLite store that are damaged, were interrupted, or were written by
// an older version.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_

#include "absl/status/status.h"
#include "service/store/sealed_logs.h"
#include "service/store/sealed_sessions.h"

namespace tidepool::service {

// Deletes all rows of a damaged session. DATA_LOSS if a page is damaged, and deleting rows from it
// would damage another session. The caller must roll the transaction back then.
absl::Status DeleteDamaged(const SessionRow& row, const StoreTime& now, SealedSessions* sessions,
                           SealedLogs* logs);

// Called after a crash. Turns that were running end as CANCELLED and keep what is in the log. All
// leases end. Damaged sessions are not changed, except that their leases end.
absl::Status EndInterruptedTurns(SealedSessions* sessions, SealedLogs* logs);

// Computes the hashes of sessions that an older version has written. A session whose parts
// contradict each other gets no hashes.
absl::Status SealAll(SealedSessions* sessions, SealedLogs* logs);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_REPAIRS_H_
