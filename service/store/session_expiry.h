// SessionExpiry: deletes the sessions of a SQLite store that were not changed for some time.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_EXPIRY_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_EXPIRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/store/sealed_logs.h"
#include "service/store/sealed_sessions.h"

namespace tidepool::service {

// Thread-compatible. A damaged session is reported once and is not deleted. A person must decide
// whether to restore a backup or to call DeleteSession.
class SessionExpiry {
 public:
  // Both pointers must outlive this object.
  SessionExpiry(SealedSessions* sessions, SealedLogs* logs) : sessions_(sessions), logs_(logs) {}

  // Deletes up to `most` sessions that were not changed for `age` and have no lease, as one step of
  // the caller's transaction. Returns their number. DATA_LOSS if it has found new damage (see
  // TakeFindings). Then the caller must roll the transaction back, and run this again in another
  // transaction. The second run skips the damaged sessions.
  absl::StatusOr<int64_t> Run(absl::Duration age, int64_t most, const StoreTime& now);

  // Returns the findings since the last call: one line for each session that is damaged, or of
  // which only a part could be deleted.
  std::vector<std::string> TakeFindings();

 private:
  // Returns the sessions to delete. Adds a finding for each damaged one.
  absl::StatusOr<std::vector<SessionRow>> FindExpired(absl::Time latest, int64_t most,
                                                      const StoreTime& now);
  absl::Status Delete(const SessionRow& row);
  // Returns `damage`.
  absl::Status AddFinding(int64_t key, const absl::Status& damage);

  SealedSessions* const sessions_;
  SealedLogs* const logs_;
  absl::flat_hash_set<int64_t> damaged_;   // keys of damaged sessions
  absl::flat_hash_set<int64_t> row_only_;  // keys of sessions whose log cannot be deleted
  std::vector<std::string> findings_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_EXPIRY_H_
