// SessionTable: the table `sessions` of the SQLite store. It has one row for each session.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_TABLE_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/store/row_cursor.h"
#include "service/store/row_hash.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

struct SessionRow {
  int64_t key = 0;
  std::string lease_request;
  std::string lease_body;
  int64_t lease_until_us = 0;  // on the monotonic clock of the process that holds the lease
  SessionInfo info;            // info.busy is not stored
  Hash128 log_hash;            // hash of the last chunk
  Hash128 turns_hash;          // hash of the last turn
  Hash128 seal;
  bool classes_fit = true;  // each column has the storage class with which it was written
};

// An entry of the index by session_id.
struct IndexedSession {
  int64_t key = 0;
  std::string session_id;
};

// Thread-compatible. This class reads and writes rows, but does not check hashes (SealedSessions
// does). The caller must have a transaction open. Errors are those of SqliteError.
class SessionTable {
 public:
  // How a session is found by its id. kScan reads all rows, for a store whose index or rows may be
  // damaged. kScan uses the index only if it reaches a row that cannot be read.
  enum class Lookup : uint8_t { kIndex, kScan };

  // Requires: the tables exist. The connection must outlive this object.
  static absl::StatusOr<SessionTable> Open(const SqliteDb& db, Lookup lookup);

  // Adds a row without hashes, with a key that no earlier row had.
  absl::Status Insert(const NewSession& session, absl::Time created);
  // Writes all columns that can change.
  absl::Status Update(const SessionRow& row);
  absl::Status Delete(int64_t key);
  // Deletes a row whose columns may differ from its entries in the indexes. Deletes these entries,
  // too.
  absl::Status DeleteDamaged(int64_t key);
  // Ends the leases that an earlier process has left. They have no meaning in this process.
  absl::Status EndLeases();

  // Returns the row to which the index or the scan leads. If the row is damaged, it may have
  // another id.
  absl::StatusOr<std::optional<SessionRow>> Find(absl::string_view session_id);
  absl::StatusOr<std::optional<SessionRow>> At(int64_t key);
  // Returns whether the index by principal contains this session under this principal.
  absl::StatusOr<bool> IsIndexedUnder(absl::string_view principal, int64_t key);
  // Returns at most `limit` rows whose keys are less than `before`. The largest key comes first.
  // `principal` must outlive the cursor.
  RowCursor<SessionRow> Page(int64_t before, int64_t limit);
  RowCursor<SessionRow> PageOf(absl::string_view principal, int64_t before, int64_t limit);
  // Like Page, for the entries of the index by session_id. Does not read the table.
  RowCursor<IndexedSession> IndexPage(int64_t before, int64_t limit);
  // Returns all rows in the order of their keys. Reads only the table, no index.
  RowCursor<SessionRow> All();
  // Returns the keys of at most `limit` sessions that were not changed after `latest` and have no
  // lease at `monotonic`. The oldest session comes first.
  RowCursor<int64_t> UnchangedSince(absl::Time latest, absl::Duration monotonic, int64_t limit);
  // Returns the keys of sessions that have a lease or a running turn.
  RowCursor<int64_t> InUse();

  absl::StatusOr<int64_t> Count();
  absl::StatusOr<int64_t> CountOf(absl::string_view principal);

 private:
  SessionTable() = default;
  absl::Status PrepareReads(const SqliteDb& db);
  absl::Status PrepareWrites(const SqliteDb& db);

  Lookup lookup_ = Lookup::kIndex;
  SqliteStatement insert_, update_, delete_, restore_indexed_, end_leases_;
  SqliteStatement find_, find_by_index_, at_, page_, page_of_, index_page_, all_, unchanged_since_,
      in_use_, is_indexed_under_, count_, count_of_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_TABLE_H_
