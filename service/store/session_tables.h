// SessionTables: the session store's tables and every SQL statement over them. No threads and no
// transactions: SqliteSessionStore brings both.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_TABLES_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_TABLES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// When a step is done.
struct StoreTime {
  absl::Time wall;           // of stamps, which people read and which outlive the process
  absl::Duration monotonic;  // of leases, which do not: no jump of the wall clock ends one
  // What stamps are held against to tell how old they are: not later than `wall`, and it goes
  // forward no faster than the monotonic clock. So a wall clock that jumps makes nothing older.
  absl::Time expiry = wall;
};

// Thread-compatible. Each function reads and writes as one step of the caller's transaction; one
// that returns an error other than RESOURCE_EXHAUSTED and INTERNAL has written nothing.
class SessionTables {
 public:
  // Requires: the schema is there. The connection outlives this.
  // `max_sessions` is of one principal; 0: any number.
  static absl::StatusOr<std::unique_ptr<SessionTables>> Create(const SqliteDb& db,
                                                               int64_t max_sessions);

  absl::StatusOr<SessionInfo> Create(const NewSession& session, const StoreTime& now);
  absl::StatusOr<SessionLogData> Get(const std::optional<std::string>& principal,
                                     absl::string_view session_id, const StoreTime& now);
  absl::StatusOr<SessionPage> List(const std::optional<std::string>& principal, int page_size,
                                   absl::string_view page_token, const StoreTime& now);
  absl::StatusOr<int64_t> Expire(absl::Duration age, int64_t most, const StoreTime& now);
  absl::Status Delete(absl::string_view principal, absl::string_view session_id,
                      const StoreTime& now);
  absl::StatusOr<int64_t> Count();
  absl::StatusOr<SessionInfo> Insert(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<SessionInfo> Replace(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<OpenTurn> BeginTurn(const TurnRequest& turn, const StoreTime& now);
  absl::Status RenewLease(absl::string_view session_id, int64_t epoch, absl::Duration until);
  absl::Status ReleaseLease(absl::string_view session_id, int64_t epoch);
  absl::Status Append(const AppendRequest& append, const StoreTime& now);
  // After a crash: turns that were running end as CANCELLED with what was logged; no lease is held.
  absl::Status EndInterruptedTurns();

 private:
  struct Row {
    int64_t key = 0;
    std::string lease_request;
    std::string lease_body;
    SessionInfo info;
  };
  SessionTables() = default;
  absl::Status PrepareForSessions(const SqliteDb& db);
  absl::Status PrepareForLogs(const SqliteDb& db);

  absl::StatusOr<Row> Find(absl::string_view session_id, const StoreTime& now);
  absl::Status CheckQuota(absl::string_view principal);
  absl::Status DeleteRow(int64_t key);
  absl::StatusOr<Row> FindOwned(absl::string_view principal, absl::string_view session_id,
                                const StoreTime& now);
  absl::Status ReadLog(const Row& row, SessionLogData* log);
  absl::StatusOr<std::string> OutputText(int64_t key, int64_t output_start);
  absl::Status CutLog(int64_t key, int64_t length);
  absl::Status InsertChunk(int64_t key, int64_t start, absl::Span<const int32_t> tokens,
                           absl::string_view text);
  absl::Status InsertTurn(int64_t key, int64_t number, const StoredTurn& turn);
  absl::Status InsertLog(int64_t key, const SessionLogData& session);
  absl::Status StartTurn(const TurnStart& begin, Row* row);
  // ALREADY_EXISTS: what the log or the lease has under this request_id is of another body.
  absl::Status CheckBody(const Row& row, const TurnRequest& turn);
  // Whether the last turn is of this request and goes on.
  absl::StatusOr<bool> ReopenTurn(const Row& row, absl::string_view request_id);
  absl::Status FinishRunningTurn(int64_t key, int64_t end, TurnFinish finish);

  SqliteStatement insert_session_, find_session_, list_sessions_, list_all_, count_sessions_,
      count_owned_;
  SqliteStatement delete_session_, delete_turns_, delete_chunks_;
  SqliteStatement take_lease_, renew_lease_, drop_lease_;
  SqliteStatement read_turns_, body_of_turn_, set_numerics_, read_chunks_, read_text_, chunk_over_, cut_chunks_;
  SqliteStatement insert_turn_, running_turn_, finish_turn_, insert_chunk_, update_session_,
      raise_epoch_;
  SqliteStatement last_turn_, clear_text_, reopen_turn_;
  SqliteStatement interrupted_, drop_all_leases_, find_expired_;
  int64_t max_sessions_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_TABLES_H_
