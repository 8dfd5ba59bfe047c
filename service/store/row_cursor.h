// RowCursor: reads the rows of a query one at a time.
//
//   RowCursor<ChunkRow> chunks = table.From(key, 0);
//   while (true) {
//     ASSIGN_OR_RETURN(const std::optional<ChunkRow> chunk, chunks.Next());
//     if (!chunk.has_value()) break;
//   }
#ifndef TIDEPOOL_SERVICE_STORE_ROW_CURSOR_H_
#define TIDEPOOL_SERVICE_STORE_ROW_CURSOR_H_

#include <optional>

#include "absl/status/statusor.h"
#include "kernels/base/status_macros.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// Thread-compatible. Until the cursor is destroyed, nothing else may run its statement. Values that
// were bound to the statement must outlive the cursor.
template <typename Row>
class RowCursor {
 public:
  using Read = Row (*)(const SqliteStatement&);

  RowCursor(SqliteStatement* statement, Read read) : statement_(statement), read_(read) {}
  ~RowCursor() { statement_->Reset(); }
  RowCursor(const RowCursor&) = delete;
  RowCursor& operator=(const RowCursor&) = delete;

  // Returns nullopt if there are no more rows. After nullopt or an error, do not call it again.
  absl::StatusOr<std::optional<Row>> Next() {
    ASSIGN_OR_RETURN(const bool more, statement_->Step());
    if (!more) return std::nullopt;
    return read_(*statement_);
  }

 private:
  SqliteStatement* const statement_;
  const Read read_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_ROW_CURSOR_H_
