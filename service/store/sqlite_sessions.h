// SqliteSessions: what each call of a SQLite store does inside a transaction.
#ifndef TIDEPOOL_SERVICE_STORE_SQLITE_SESSIONS_H_
#define TIDEPOOL_SERVICE_STORE_SQLITE_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/store/sealed_logs.h"
#include "service/store/sealed_sessions.h"
#include "service/store/session_expiry.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_db.h"
#include "service/store/store_ledger.h"

namespace tidepool::service {

// What a deletion removes. kRow removes only the row of the session. kRow is for a log on pages
// that cannot be read. The rows of this log remain, but no session reads them, because keys are
// never used twice.
enum class DeletedRows : uint8_t { kAll, kRow };

// Thread-compatible. Functions that have the name of a call of SessionStore do the same as that
// call, as one step of the caller's transaction. If such a function returns an error, it has
// written nothing, unless the error is RESOURCE_EXHAUSTED, DATA_LOSS or INTERNAL.
class SqliteSessions {
 public:
  // Requires: the tables exist. The connection and the ledger must outlive this object.
  static absl::StatusOr<std::unique_ptr<SqliteSessions>> Open(const SqliteDb& db,
                                                              StoreLedger* ledger,
                                                              const SealedSessionsOptions& options);

  SealedSessions& sessions() { return *sessions_; }
  SealedLogs& logs() { return *logs_; }

  absl::StatusOr<SessionInfo> Create(const NewSession& session, const StoreTime& now);
  absl::StatusOr<SessionLogData> Get(const std::optional<std::string>& principal,
                                     absl::string_view session_id, const StoreTime& now);
  // Also deletes damaged sessions.
  absl::Status Delete(absl::string_view principal, absl::string_view session_id,
                      const StoreTime& now, DeletedRows rows);
  // Same as SessionExpiry::Run.
  absl::StatusOr<int64_t> Expire(absl::Duration age, int64_t most, const StoreTime& now);
  std::vector<std::string> TakeExpiryFindings() { return expiry_.TakeFindings(); }
  absl::StatusOr<SessionInfo> Insert(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<SessionInfo> Replace(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<OpenTurn> BeginTurn(const TurnRequest& turn, const StoreTime& now);
  absl::Status RenewLease(absl::string_view session_id, int64_t epoch, absl::Duration until);
  absl::Status ReleaseLease(absl::string_view session_id, int64_t epoch);
  absl::Status Append(const AppendRequest& append, const StoreTime& now);

 private:
  SqliteSessions(std::unique_ptr<SealedSessions> sessions, std::unique_ptr<SealedLogs> logs);

  const std::unique_ptr<SealedSessions> sessions_;
  const std::unique_ptr<SealedLogs> logs_;
  SessionExpiry expiry_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_SESSIONS_H_
