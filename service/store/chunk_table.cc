#include "service/store/chunk_table.h"

#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

ChunkRow ReadRow(const SqliteStatement& row) {
  return {.start = row.Int(0),
          .tokens = std::string(row.Text(1)),
          .text = std::string(row.Text(2)),
          .hash = row.HasClasses("ibtb") ? Hash128::FromBytes(row.Text(3)) : Hash128()};
}

std::string ReadText(const SqliteStatement& row) { return std::string(row.Text(0)); }

absl::StatusOr<std::optional<ChunkRow>> ReadOne(SqliteStatement* statement) {
  return RowCursor<ChunkRow>(statement, ReadRow).Next();
}

}  // namespace

absl::StatusOr<ChunkTable> ChunkTable::Open(const SqliteDb& db) {
  ChunkTable table;
  RETURN_IF_ERROR(db.PrepareAll({
      {&table.all_,
       "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 ORDER BY start"},
      {&table.from_,
       "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start >= ?2 "
       "ORDER BY start"},
      {&table.at_,
       "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start = ?2"},
      {&table.last_before_,
       "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start < ?2 "
       "ORDER BY start DESC LIMIT 1"},
      {&table.text_from_,
       "SELECT text FROM chunks WHERE session = ?1 AND start >= ?2 ORDER BY start"},
      {&table.write_,
       "INSERT INTO chunks (session, start, tokens, text, hash) VALUES (?1, ?2, ?3, ?4, ?5) "
       "ON CONFLICT DO UPDATE SET tokens = ?3, text = ?4, hash = ?5"},
      {&table.write_hash_, "UPDATE chunks SET hash = ?3 WHERE session = ?1 AND start = ?2"},
      {&table.clear_text_from_, "UPDATE chunks SET text = '' WHERE session = ?1 AND start >= ?2"},
      {&table.delete_from_, "DELETE FROM chunks WHERE session = ?1 AND start >= ?2"},
      {&table.delete_all_, "DELETE FROM chunks WHERE session = ?1"},
  }));
  return table;
}

RowCursor<ChunkRow> ChunkTable::All(int64_t session) { return {&all_.Bind(1, session), ReadRow}; }

RowCursor<ChunkRow> ChunkTable::From(int64_t session, int64_t start) {
  return {&from_.Bind(1, session).Bind(2, start), ReadRow};
}

absl::StatusOr<std::optional<ChunkRow>> ChunkTable::At(int64_t session, int64_t start) {
  return ReadOne(&at_.Bind(1, session).Bind(2, start));
}

absl::StatusOr<std::optional<ChunkRow>> ChunkTable::LastBefore(int64_t session, int64_t start) {
  return ReadOne(&last_before_.Bind(1, session).Bind(2, start));
}

absl::StatusOr<std::string> ChunkTable::TextFrom(int64_t session, int64_t start) {
  std::string text;
  RowCursor<std::string> pieces(&text_from_.Bind(1, session).Bind(2, start), ReadText);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string> piece, pieces.Next());
    if (!piece.has_value()) return text;
    text += *piece;
  }
}

absl::Status ChunkTable::Write(int64_t session, const ChunkRow& chunk) {
  const std::string hash = chunk.hash.Bytes();
  return write_.Bind(1, session)
      .Bind(2, chunk.start)
      .BindBlob(3, chunk.tokens)
      .Bind(4, chunk.text)
      .BindBlob(5, hash)
      .Run();
}

absl::Status ChunkTable::WriteHash(int64_t session, int64_t start, const Hash128& hash) {
  const std::string bytes = hash.Bytes();
  return write_hash_.Bind(1, session).Bind(2, start).BindBlob(3, bytes).Run();
}

absl::Status ChunkTable::ClearTextFrom(int64_t session, int64_t start) {
  return clear_text_from_.Bind(1, session).Bind(2, start).Run();
}

absl::Status ChunkTable::DeleteFrom(int64_t session, int64_t start) {
  return delete_from_.Bind(1, session).Bind(2, start).Run();
}

absl::Status ChunkTable::DeleteAll(int64_t session) { return delete_all_.Bind(1, session).Run(); }

}  // namespace tidepool::service
