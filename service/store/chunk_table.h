// ChunkTable: the table `chunks` of the SQLite store. A session's token log is stored in chunks.
// Each chunk also contains the text that the workers made of its output tokens.
#ifndef TIDEPOOL_SERVICE_STORE_CHUNK_TABLE_H_
#define TIDEPOOL_SERVICE_STORE_CHUNK_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/store/row_cursor.h"
#include "service/store/row_hash.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

struct ChunkRow {
  int64_t start = 0;   // position of its first token in the log
  std::string tokens;  // in the format of token_bytes.h
  std::string text;
  Hash128 hash;  // 0 if a column has a wrong storage class; no valid hash is 0
};

// Thread-compatible. This class reads and writes rows, but does not check hashes (SealedLogs does).
// `session` is the key of a session. The caller must have a transaction open. Errors are those of
// SqliteError.
class ChunkTable {
 public:
  // Requires: the tables exist. The connection must outlive this object.
  static absl::StatusOr<ChunkTable> Open(const SqliteDb& db);

  // Returns all chunks of a session, in the order of the log.
  RowCursor<ChunkRow> All(int64_t session);
  // Returns the chunks that start at `start` or later.
  RowCursor<ChunkRow> From(int64_t session, int64_t start);
  absl::StatusOr<std::optional<ChunkRow>> At(int64_t session, int64_t start);
  // Returns the last chunk that starts before `start`.
  absl::StatusOr<std::optional<ChunkRow>> LastBefore(int64_t session, int64_t start);
  // Returns the text of all chunks that start at `start` or later.
  absl::StatusOr<std::string> TextFrom(int64_t session, int64_t start);

  // Adds the chunk. If there is a chunk with the same start, replaces it.
  absl::Status Write(int64_t session, const ChunkRow& chunk);
  absl::Status WriteHash(int64_t session, int64_t start, const Hash128& hash);
  // Each of the next two functions changes the chunks that start at `start` or later.
  absl::Status ClearTextFrom(int64_t session, int64_t start);
  absl::Status DeleteFrom(int64_t session, int64_t start);
  absl::Status DeleteAll(int64_t session);

 private:
  ChunkTable() = default;

  SqliteStatement all_, from_, at_, last_before_, text_from_;
  SqliteStatement write_, write_hash_, clear_text_from_, delete_from_, delete_all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_CHUNK_TABLE_H_
