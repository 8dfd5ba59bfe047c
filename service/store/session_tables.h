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
#include "service/store/row_hash.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_db.h"
#include "service/store/store_ledger.h"

namespace tidepool::service {

// The time of a step.
struct StoreTime {
  absl::Time wall;           // for stamps, which are shown and survive the process
  absl::Duration monotonic;  // for leases, so that no jump of the wall clock ends one
  // Compared with stamps to compute their age. It is never later than `wall` and never faster than
  // the monotonic clock, so a jump of the wall clock makes nothing older.
  absl::Time expiry = wall;
};

// The result of scanning every session's row.
struct SessionScan {
  int64_t sessions = 0;
  Hash128 sum;                       // of the seals as they are stored
  std::vector<std::string> damaged;  // a line for each damaged row
  absl::Status end;                  // why not all rows could be read
};

// Thread-compatible. Each function reads and writes as one step of the caller's transaction; one
// that returns an error other than RESOURCE_EXHAUSTED, DATA_LOSS and INTERNAL has written nothing.
//
// Damage: chunk i's hash is over the session's id, the chunks before it and its own columns; turn
// i's hash likewise. A session's seal is over its row and both last hashes, and the ledger has the
// sum of all seals. All that is read is compared before it is used or hashed again. DATA_LOSS names
// the session. lease_until_us is not hashed: it means nothing to another process.
class SessionTables {
 public:
  // How a session is found by its id. kScan reads all rows, and uses the index only past rows that
  // cannot be read: for stores in which either may be damaged.
  enum class Lookup : uint8_t { kIndex, kScan };

  // Requires: the schema is there. The connection and the ledger outlive this.
  // `max_sessions` is of one principal; 0: any number.
  static absl::StatusOr<std::unique_ptr<SessionTables>> Create(const SqliteDb& db,
                                                               StoreLedger* ledger,
                                                               int64_t max_sessions, Lookup lookup);

  absl::StatusOr<SessionInfo> Create(const NewSession& session, const StoreTime& now);
  absl::StatusOr<SessionLogData> Get(const std::optional<std::string>& principal,
                                     absl::string_view session_id, const StoreTime& now);
  // A damaged session has SessionInfo::damage.
  absl::StatusOr<SessionPage> List(const std::optional<std::string>& principal, int page_size,
                                   absl::string_view page_token, const StoreTime& now);
  absl::StatusOr<int64_t> Expire(absl::Duration age, int64_t most, const StoreTime& now);
  // What of a session is deleted: all, or its row alone, where others are on pages that cannot be
  // read: they stay, and nobody finds them, for keys are not used again.
  enum class Rows : uint8_t { kAll, kSession };
  // A damaged session too.
  absl::Status Delete(absl::string_view principal, absl::string_view session_id,
                      const StoreTime& now, Rows rows);
  absl::StatusOr<int64_t> Count();
  absl::StatusOr<SessionInfo> Insert(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<SessionInfo> Replace(const SessionLogData& session, const StoreTime& now);
  absl::StatusOr<OpenTurn> BeginTurn(const TurnRequest& turn, const StoreTime& now);
  absl::Status RenewLease(absl::string_view session_id, int64_t epoch, absl::Duration until);
  absl::Status ReleaseLease(absl::string_view session_id, int64_t epoch);
  absl::Status Append(const AppendRequest& append, const StoreTime& now);

  // Reads the table itself, no index.
  SessionScan Scan();
  // After a crash: turns that were running end as CANCELLED with what was logged; no lease is held.
  // Damaged sessions stay as they are.
  absl::Status EndInterruptedTurns();
  // Hashes sessions that an older version wrote. Those that do not hold together stay without.
  absl::Status SealAll();

 private:
  struct Row {
    int64_t key = 0;
    std::string lease_request;
    std::string lease_body;
    int64_t lease_until_us = 0;
    SessionInfo info;
    Hash128 log_hash;    // of the last chunk
    Hash128 turns_hash;  // of the last turn
    Hash128 seal;
    bool classes_fit = true;  // each column has the storage class that it was written with
  };
  struct Chunk {
    int64_t start = 0;
    std::string tokens;  // bytes
    std::string text;
    Hash128 hash;  // 0, which fits nothing: a column has another storage class than was written
  };
  struct TurnRow {
    StoredTurn turn;       // without its messages
    std::string messages;  // as stored
    Hash128 hash;          // as Chunk's
  };
  SessionTables() = default;
  absl::Status PrepareForSessions(const SqliteDb& db);
  absl::Status PrepareForLogs(const SqliteDb& db);
  absl::Status PrepareForRepairs(const SqliteDb& db);

  static Row ReadRow(const SqliteStatement& row, const StoreTime& now);
  static Hash128 SealOf(const Row& row);
  static Hash128 LogStart(const Row& row);
  static Hash128 TurnsStart(const Row& row);
  static Hash128 HashOf(const Hash128& before, const Chunk& chunk);
  static Hash128 HashOf(const Hash128& before, int64_t number, const TurnRow& turn);
  static absl::Status CheckRow(const Row& row);

  // Of any row under this id, damaged or not.
  absl::StatusOr<Row> FindAny(absl::string_view session_id, const StoreTime& now);
  absl::StatusOr<Row> FindKey(int64_t key, const StoreTime& now);
  absl::StatusOr<Row> Find(absl::string_view session_id, const StoreTime& now);
  absl::StatusOr<Row> FindOwned(absl::string_view principal, absl::string_view session_id,
                                const StoreTime& now);
  // Seals the row and writes what can change of it.
  absl::Status Save(Row* row);
  absl::Status CheckQuota(absl::string_view principal);
  // A page of List past rows that cannot be read. It has their names from the index.
  absl::StatusOr<SessionPage> ListByIndex(int page_size, int64_t before, const StoreTime& now);
  // The entry in a list of a damaged row, under the id that clients know.
  SessionInfo DescribeDamage(const Row& row, absl::Status damage, const StoreTime& now);
  absl::Status DeleteRow(const Row& row, Rows rows);
  // Deletes all of a damaged session. DATA_LOSS: a page is damaged so that this would damage
  // another session too; the transaction must be rolled back.
  absl::Status DeleteDamaged(const Row& row, const StoreTime& now);
  // The undamaged sessions whose rows can be on the same pages as those of `key`.
  std::vector<Row> WholeNeighbors(int64_t key, const StoreTime& now);

  absl::Status ReadLog(const Row& row, SessionLogData* log);
  absl::Status ReadTokens(const Row& row, std::vector<int32_t>* tokens);
  absl::Status ReadTurns(const Row& row, std::vector<StoredTurn>* turns);
  absl::StatusOr<std::string> OutputText(int64_t key, int64_t output_start);
  // The last chunk that starts before `before`; none: an empty one with the hash of the log's
  // start.
  absl::StatusOr<Chunk> LastChunk(const Row& row, int64_t before);
  // Behind the log's end. None of these four saves the row.
  absl::Status AddChunk(Row* row, absl::Span<const int32_t> tokens, absl::string_view text);
  absl::Status CutLog(Row* row, int64_t length);
  absl::Status AddTurn(Row* row, const StoredTurn& turn);
  absl::Status AddLog(Row* row, const SessionLogData& session);
  // Recomputes the hashes of the chunks from `from` on.
  absl::Status Rechain(Row* row, int64_t from);
  absl::Status WriteChunk(const Row& row, const Chunk& chunk);

  absl::Status StartTurn(const TurnStart& begin, Row* row);
  // The last turn, and the hash before it. None: there are no turns.
  absl::StatusOr<std::optional<TurnRow>> LastTurn(const Row& row, Hash128* before);
  // The current row of turn_at_, which is then reset.
  TurnRow TurnAt();
  absl::Status ChangeTurn(Row* row, const Hash128& before, TurnRow* turn);
  // Updates the running turn. Empty numerics_id: unchanged.
  absl::Status UpdateRunningTurn(Row* row, TurnFinish finish, absl::string_view numerics_id);
  // ALREADY_EXISTS: the log or the lease has this request_id with another body.
  static absl::Status CheckBody(const Row& row, const SessionLogData& log, const TurnRequest& turn);
  // True: the last turn has this request_id and continues.
  absl::StatusOr<bool> ReopenTurn(Row* row, const SessionLogData& log,
                                  absl::string_view request_id);
  // Adds hashes and the seal to a session that an older version wrote.
  absl::Status SealSession(Row row);

  StoreLedger* ledger_ = nullptr;
  Lookup lookup_ = Lookup::kIndex;
  SqliteStatement insert_session_, find_session_, find_by_index_, find_key_, list_sessions_,
      list_all_, list_index_, scan_, count_sessions_, count_owned_, find_expired_, leased_;
  SqliteStatement save_session_, delete_session_, delete_turns_, delete_chunks_;
  SqliteStatement read_turns_, turn_at_, insert_turn_, change_turn_, hash_turn_;
  SqliteStatement read_chunks_, chunk_at_, chunk_before_, read_text_, cut_chunks_, write_chunk_,
      clear_text_, chunks_from_, hash_chunk_;
  int64_t max_sessions_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_TABLES_H_
