// SealedSessions: the rows of sessions in a SQLite store, with their seals (session_seals.h) and
// the ledger (store_ledger.h).
#ifndef TIDEPOOL_SERVICE_STORE_SEALED_SESSIONS_H_
#define TIDEPOOL_SERVICE_STORE_SEALED_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/store/row_hash.h"
#include "service/store/session_store.h"
#include "service/store/session_table.h"
#include "service/store/sqlite_db.h"
#include "service/store/store_ledger.h"

namespace tidepool::service {

// The time of a transaction, on three clocks.
struct StoreTime {
  absl::Time wall;           // for time stamps, which are shown to users and are stored
  absl::Duration monotonic;  // for leases, so that they do not end if the wall clock is set
  // Only for computing the age of time stamps. It is never later than `wall`, and never runs faster
  // than the monotonic clock. So a change of the wall clock makes no session look older.
  absl::Time expiry = wall;
};

// The result of reading the row of every session.
struct SessionScan {
  int64_t sessions = 0;
  Hash128 sum;                       // sum of the stored seals
  std::vector<std::string> damaged;  // one line for each damaged row
  absl::Status end;                  // an error if not all rows could be read
};

struct SealedSessionsOptions {
  int64_t max_sessions = 0;  // maximum for each principal; 0: no limit
  SessionTable::Lookup lookup = SessionTable::Lookup::kIndex;
};

// Thread-compatible. The caller must have a transaction open. The functions set info.busy in the
// rows that they return. They check the seal of each row, unless their comment says otherwise.
// DATA_LOSS if the row does not match its seal, or if SQLite cannot read it.
class SealedSessions {
 public:
  // Requires: the tables exist. The connection and the ledger must outlive this object.
  static absl::StatusOr<std::unique_ptr<SealedSessions>> Open(const SqliteDb& db,
                                                              StoreLedger* ledger,
                                                              const SealedSessionsOptions& options);

  // Adds a session with an empty log. ALREADY_EXISTS if the id is taken. RESOURCE_EXHAUSTED if the
  // principal has reached its maximum number of sessions.
  absl::StatusOr<SessionRow> Add(const NewSession& session, const StoreTime& now);
  // Computes the row's seal, and writes all columns that can change.
  absl::Status Save(SessionRow* row);
  // Deletes the row, even if it is damaged. Does not delete its log.
  absl::Status Remove(const SessionRow& row);

  // NOT_FOUND if there is no such session.
  absl::StatusOr<SessionRow> Find(absl::string_view session_id, const StoreTime& now);
  // NOT_FOUND if there is no such session, or if it belongs to another principal.
  absl::StatusOr<SessionRow> FindOwned(absl::string_view principal, absl::string_view session_id,
                                       const StoreTime& now);
  // Does not check the seal. DATA_LOSS if the index leads from this id to a row with another id.
  absl::StatusOr<SessionRow> FindUnchecked(absl::string_view session_id, const StoreTime& now);
  // Does not check the seal. Returns the row that List shows to this principal under this id. List
  // uses the indexes. If a row is damaged, its id and principal may differ from those in the
  // indexes.
  absl::StatusOr<SessionRow> FindListed(absl::string_view principal, absl::string_view session_id,
                                        const StoreTime& now);
  // DATA_LOSS also if there is no row with this key.
  absl::StatusOr<SessionRow> FindKey(int64_t key, const StoreTime& now);

  // If `principal` is not set, lists the sessions of all principals. In a damaged session,
  // SessionInfo::damage is set. INVALID_ARGUMENT if page_token is invalid.
  absl::StatusOr<SessionPage> List(const std::optional<std::string>& principal, int page_size,
                                   absl::string_view page_token, const StoreTime& now);
  absl::StatusOr<int64_t> Count() { return table_.Count(); }
  // Reads the rows without using an index.
  SessionScan Scan();

  // Returns the keys of at most `limit` sessions that were not changed after `latest` and have no
  // lease.
  absl::StatusOr<std::vector<int64_t>> UnchangedSince(absl::Time latest, int64_t limit,
                                                      const StoreTime& now);
  // Returns the keys of sessions that have a lease or a running turn.
  absl::StatusOr<std::vector<int64_t>> InUse();
  // Ends the leases that an earlier process has left, including those of damaged rows.
  absl::Status EndLeases() { return table_.EndLeases(); }
  // Returns the id that the index has for this session, or "" if the index does not have it.
  std::string IndexedId(int64_t key);
  // Returns the undamaged rows that may be on the same pages as the row with this key.
  std::vector<SessionRow> Neighbors(int64_t key, const StoreTime& now);
  // Returns all rows, including damaged ones, and adds them to the ledger. Requires: the ledger
  // contains no session yet.
  absl::StatusOr<std::vector<SessionRow>> AdoptAll();

 private:
  SealedSessions(SessionTable table, StoreLedger* ledger, const SealedSessionsOptions& options);

  absl::Status CheckQuota(absl::string_view principal);
  // Lists all sessions, like List. But if a row cannot be read, it continues, and takes the row's
  // id from the index.
  absl::StatusOr<SessionPage> ListByIndex(int page_size, int64_t before, const StoreTime& now);
  // Returns the list entry of a damaged row. The entry has the id that clients know.
  SessionInfo DescribeDamage(const SessionRow& row, absl::Status damage, const StoreTime& now);

  SessionTable table_;
  StoreLedger* const ledger_;
  const SealedSessionsOptions options_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SEALED_SESSIONS_H_
