// SessionTable: the table `sessions` of the SQLite store, one row for each session.
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
  int64_t lease_until_us = 0;  // by the monotonic clock of the process that holds the lease
  SessionInfo info;            // `busy` is not stored
  Hash128 log_hash;            // of the last chunk
  Hash128 turns_hash;          // of the last turn
  Hash128 seal;
  bool classes_fit = true;  // each column has the storage class that it was written with
};

// An entry of the index by session_id.
struct IndexedSession {
  int64_t key = 0;
  std::string session_id;
};

// Thread-compatible. Reads and writes rows and checks no hashes (SealedSessions does). The caller
// has a transaction open. Errors are those of SqliteError.
class SessionTable {
 public:
  // How a session is found by its id. kScan is for stores whose index or rows may be damaged: it
  // reads all rows, and uses the index only after a row that cannot be read.
  enum class Lookup : uint8_t { kIndex, kScan };

  // Requires: the schema is there. The connection outlives the table.
  static absl::StatusOr<SessionTable> Open(const SqliteDb& db, Lookup lookup);

  // A new row without hashes, with a key that was never used before.
  absl::Status Insert(const NewSession& session, absl::Time created);
  // Writes every column that can change.
  absl::Status Update(const SessionRow& row);
  absl::Status Delete(int64_t key);
  // Same, for a row whose columns may differ from its entries in the indexes. Deletes these
  // entries, too.
  absl::Status DeleteDamaged(int64_t key);
  // No lease outlives its process: ends those that an earlier one left.
  absl::Status EndLeases();

  // The row that the index or the scan leads to. If that row is damaged, it can have another id.
  absl::StatusOr<std::optional<SessionRow>> Find(absl::string_view session_id);
  absl::StatusOr<std::optional<SessionRow>> At(int64_t key);
  // Whether the index by principal has this session under this principal.
  absl::StatusOr<bool> IsIndexedUnder(absl::string_view principal, int64_t key);
  // At most `limit` rows with keys less than `before`, the largest key first. `principal` outlives
  // the cursor.
  RowCursor<SessionRow> Page(int64_t before, int64_t limit);
  RowCursor<SessionRow> PageOf(absl::string_view principal, int64_t before, int64_t limit);
  // Same for the index by session_id. Does not read the table.
  RowCursor<IndexedSession> IndexPage(int64_t before, int64_t limit);
  // All rows by their keys. Reads only the table.
  RowCursor<SessionRow> All();
  // Keys of at most `limit` sessions that were not changed after `latest`, and have no lease at
  // `monotonic`. The oldest comes first.
  RowCursor<int64_t> UnchangedSince(absl::Time latest, absl::Duration monotonic, int64_t limit);
  // Keys of sessions with a lease or a running turn.
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
