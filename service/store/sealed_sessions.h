// SealedSessions: the rows of sessions in a SQLite store, with their seals and the ledger.
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

// The time of a transaction.
struct StoreTime {
  absl::Time wall;           // for stamps, which are shown and survive the process
  absl::Duration monotonic;  // for leases, so that no jump of the wall clock ends one
  // Compared with stamps to compute their age. It is never later than `wall` and never faster than
  // the monotonic clock, so a jump of the wall clock makes nothing older.
  absl::Time expiry = wall;
};

// The result of reading every session's row.
struct SessionScan {
  int64_t sessions = 0;
  Hash128 sum;                       // of the seals as they are stored
  std::vector<std::string> damaged;  // a line for each damaged row
  absl::Status end;                  // why not all rows could be read
};

struct SealedSessionsOptions {
  int64_t max_sessions = 0;  // of one principal; 0: no limit
  SessionTable::Lookup lookup = SessionTable::Lookup::kIndex;
};

// Thread-compatible. The caller has a transaction open. Rows are returned with info.busy set, and
// their seal is checked unless the function says otherwise. DATA_LOSS: the row does not match its
// seal, or SQLite cannot read it.
class SealedSessions {
 public:
  // Requires: the schema is there. The connection and the ledger outlive this object.
  static absl::StatusOr<std::unique_ptr<SealedSessions>> Open(const SqliteDb& db,
                                                              StoreLedger* ledger,
                                                              const SealedSessionsOptions& options);

  // A new session with an empty log. ALREADY_EXISTS: the id is taken; RESOURCE_EXHAUSTED: the
  // principal has reached the limit.
  absl::StatusOr<SessionRow> Add(const NewSession& session, const StoreTime& now);
  // Seals the row and writes the columns that can change.
  absl::Status Save(SessionRow* row);
  // Deletes the row, damaged or not, and leaves its log.
  absl::Status Remove(const SessionRow& row);

  // NOT_FOUND.
  absl::StatusOr<SessionRow> Find(absl::string_view session_id, const StoreTime& now);
  // NOT_FOUND also if the session belongs to another principal.
  absl::StatusOr<SessionRow> FindOwned(absl::string_view principal, absl::string_view session_id,
                                       const StoreTime& now);
  // Does not check the seal. DATA_LOSS: the index leads from this id to a row with another id.
  absl::StatusOr<SessionRow> FindUnchecked(absl::string_view session_id, const StoreTime& now);
  // Does not check the seal either. Returns the row that lists show to this principal under this
  // id. A damaged row can have another id and principal than the indexes, which lists go by.
  absl::StatusOr<SessionRow> FindListed(absl::string_view principal, absl::string_view session_id,
                                        const StoreTime& now);
  // DATA_LOSS also if there is no such row.
  absl::StatusOr<SessionRow> FindKey(int64_t key, const StoreTime& now);

  // Unset principal: all. A damaged session has SessionInfo::damage. INVALID_ARGUMENT: page_token.
  absl::StatusOr<SessionPage> List(const std::optional<std::string>& principal, int page_size,
                                   absl::string_view page_token, const StoreTime& now);
  absl::StatusOr<int64_t> Count() { return table_.Count(); }
  // Reads the table itself, no index.
  SessionScan Scan();

  // Keys of at most `limit` sessions that were not changed after `latest` and have no lease.
  absl::StatusOr<std::vector<int64_t>> UnchangedSince(absl::Time latest, int64_t limit,
                                                      const StoreTime& now);
  // Keys of sessions with a lease or a running turn.
  absl::StatusOr<std::vector<int64_t>> InUse();
  // Ends the leases that an earlier process left, including those of damaged rows.
  absl::Status EndLeases() { return table_.EndLeases(); }
  // The id that the index has of this session. Empty: none.
  std::string IndexedId(int64_t key);
  // The undamaged rows that can be on the same pages as the row with this key.
  std::vector<SessionRow> Neighbors(int64_t key, const StoreTime& now);
  // All rows, damaged or not. Adds them to the ledger, which has none of them yet.
  absl::StatusOr<std::vector<SessionRow>> AdoptAll();

 private:
  SealedSessions(SessionTable table, StoreLedger* ledger, const SealedSessionsOptions& options);

  absl::Status CheckQuota(absl::string_view principal);
  // Same as List of all sessions, but continues after rows that cannot be read, whose ids come from
  // the index.
  absl::StatusOr<SessionPage> ListByIndex(int page_size, int64_t before, const StoreTime& now);
  // The list entry of a damaged row, under the id that clients know.
  SessionInfo DescribeDamage(const SessionRow& row, absl::Status damage, const StoreTime& now);

  SessionTable table_;
  StoreLedger* const ledger_;
  const SealedSessionsOptions options_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SEALED_SESSIONS_H_
