// TurnTable: the table `turns` of the SQLite store. The turns of a session are numbered from 0.
#ifndef TIDEPOOL_SERVICE_STORE_TURN_TABLE_H_
#define TIDEPOOL_SERVICE_STORE_TURN_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/store/row_cursor.h"
#include "service/store/row_hash.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

struct TurnRow {
  StoredTurn turn;       // without its messages
  std::string messages;  // in the format of message_json.h
  Hash128 hash;          // 0 if a column has a wrong storage class; no valid hash is 0
};

// Thread-compatible. This class reads and writes rows, but does not check hashes (SealedLogs does).
// `session` is the key of a session. The caller must have a transaction open. Errors are those of
// SqliteError.
class TurnTable {
 public:
  // Requires: the tables exist. The connection must outlive this object.
  static absl::StatusOr<TurnTable> Open(const SqliteDb& db);

  // Returns the first `count` turns, in order.
  RowCursor<TurnRow> First(int64_t session, int64_t count);
  absl::StatusOr<std::optional<TurnRow>> At(int64_t session, int64_t number);

  absl::Status Insert(int64_t session, int64_t number, const TurnRow& row);
  // Writes all columns that can change: the end, the response, the finish, the numerics_id and the
  // hash.
  absl::Status Update(int64_t session, int64_t number, const TurnRow& row);
  absl::Status WriteHash(int64_t session, int64_t number, const Hash128& hash);
  absl::Status DeleteAll(int64_t session);

 private:
  TurnTable() = default;

  SqliteStatement first_, at_, insert_, update_, write_hash_, delete_all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_TURN_TABLE_H_
