#include "service/store/turn_table.h"

#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

TurnRow ReadRow(const SqliteStatement& row) {
  TurnRow read;
  read.turn = {.request_id = std::string(row.Text(0)),
               .start = row.Int(1),
               .output_start = row.Int(2),
               .end = row.Int(3),
               .messages = {},
               .response = std::string(row.Text(5)),
               .finish = static_cast<TurnFinish>(row.Int(6)),
               .body_digest = std::string(row.Text(7)),
               .numerics_id = std::string(row.Text(8))};
  read.messages = std::string(row.Text(4));
  if (row.HasClasses("tiiittittbi")) read.hash = Hash128::FromBytes(row.Text(9));
  return read;
}

}  // namespace

absl::StatusOr<TurnTable> TurnTable::Open(const SqliteDb& db) {
  TurnTable table;
  RETURN_IF_ERROR(db.PrepareAll({
      {&table.first_,
       "SELECT request_id, start, output_start, end, messages, answer, finish, body, "
       "numerics_id, hash, turn FROM turns WHERE session = ?1 ORDER BY turn LIMIT ?2"},
      {&table.at_,
       "SELECT request_id, start, output_start, end, messages, answer, finish, body, "
       "numerics_id, hash, turn FROM turns WHERE session = ?1 AND turn = ?2"},
      {&table.insert_,
       "INSERT INTO turns (session, turn, request_id, start, output_start, messages, end, "
       "answer, finish, body, numerics_id, hash) "
       "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"},
      {&table.update_,
       "UPDATE turns SET end = ?3, answer = ?4, finish = ?5, numerics_id = ?6, hash = ?7 "
       "WHERE session = ?1 AND turn = ?2"},
      {&table.write_hash_, "UPDATE turns SET hash = ?3 WHERE session = ?1 AND turn = ?2"},
      {&table.delete_all_, "DELETE FROM turns WHERE session = ?1"},
  }));
  return table;
}

RowCursor<TurnRow> TurnTable::First(int64_t session, int64_t count) {
  return {&first_.Bind(1, session).Bind(2, count), ReadRow};
}

absl::StatusOr<std::optional<TurnRow>> TurnTable::At(int64_t session, int64_t number) {
  return RowCursor<TurnRow>(&at_.Bind(1, session).Bind(2, number), ReadRow).Next();
}

absl::Status TurnTable::Insert(int64_t session, int64_t number, const TurnRow& row) {
  const StoredTurn& turn = row.turn;
  const std::string hash = row.hash.Bytes();
  return insert_.Bind(1, session)
      .Bind(2, number)
      .Bind(3, turn.request_id)
      .Bind(4, turn.start)
      .Bind(5, turn.output_start)
      .Bind(6, row.messages)
      .Bind(7, turn.end)
      .Bind(8, turn.response)
      .Bind(9, static_cast<int64_t>(turn.finish))
      .Bind(10, turn.body_digest)
      .Bind(11, turn.numerics_id)
      .BindBlob(12, hash)
      .Run();
}

absl::Status TurnTable::Update(int64_t session, int64_t number, const TurnRow& row) {
  const std::string hash = row.hash.Bytes();
  return update_.Bind(1, session)
      .Bind(2, number)
      .Bind(3, row.turn.end)
      .Bind(4, row.turn.response)
      .Bind(5, static_cast<int64_t>(row.turn.finish))
      .Bind(6, row.turn.numerics_id)
      .BindBlob(7, hash)
      .Run();
}

absl::Status TurnTable::WriteHash(int64_t session, int64_t number, const Hash128& hash) {
  const std::string bytes = hash.Bytes();
  return write_hash_.Bind(1, session).Bind(2, number).BindBlob(3, bytes).Run();
}

absl::Status TurnTable::DeleteAll(int64_t session) { return delete_all_.Bind(1, session).Run(); }

}  // namespace tidepool::service
