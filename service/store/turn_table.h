// TurnTable: the table `turns` of the SQLite store. A session's turns are numbered from 0.
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
  std::string messages;  // message_json.h
  Hash128 hash;  // 0, which no hash is, if a column has another storage class than was written
};

// Thread-compatible. Reads and writes rows and checks no hashes (SealedLogs does). `session` is a
// session's key. The caller has a transaction open. Errors are those of SqliteError.
class TurnTable {
 public:
  // Requires: the schema is there. The connection outlives the table.
  static absl::StatusOr<TurnTable> Open(const SqliteDb& db);

  // The first `count` turns, in order.
  RowCursor<TurnRow> First(int64_t session, int64_t count);
  absl::StatusOr<std::optional<TurnRow>> At(int64_t session, int64_t number);

  absl::Status Insert(int64_t session, int64_t number, const TurnRow& row);
  // Writes every column that can change: the end, the answer, the finish, the numerics_id and the
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
