#include "service/store/session_table.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/lease.h"

namespace tidepool::service {
namespace {

constexpr char kColumns[] =
    "SELECT key, session_id, principal, model, model_digest, kind, create_us, update_us, "
    "token_count, turn_count, epoch, lease_request, lease_until_us, lease_body, log_hash, "
    "turns_hash, seal FROM sessions ";
constexpr char kClasses[] = "ittttiiiiiititbbb";

SessionInfo ReadInfo(const SqliteStatement& row) {
  SessionInfo info;
  info.session_id = std::string(row.Text(1));
  info.principal = std::string(row.Text(2));
  info.model = std::string(row.Text(3));
  info.model_digest = std::string(row.Text(4));
  info.kind = static_cast<SessionKind>(row.Int(5));
  info.create_time = absl::FromUnixMicros(row.Int(6));
  info.update_time = absl::FromUnixMicros(row.Int(7));
  info.token_count = row.Int(8);
  info.turn_count = static_cast<int32_t>(row.Int(9));
  info.epoch = row.Int(10);
  return info;
}

SessionRow ReadRow(const SqliteStatement& row) {
  return {.key = row.Int(0),
          .lease_request = std::string(row.Text(11)),
          .lease_body = std::string(row.Text(13)),
          .lease_until_us = row.Int(12),
          .info = ReadInfo(row),
          .log_hash = Hash128::FromBytes(row.Text(14)),
          .turns_hash = Hash128::FromBytes(row.Text(15)),
          .seal = Hash128::FromBytes(row.Text(16)),
          .classes_fit = row.HasClasses(kClasses)};
}

int64_t ReadKey(const SqliteStatement& row) { return row.Int(0); }

IndexedSession ReadIndexed(const SqliteStatement& row) {
  return {.key = row.Int(0), .session_id = std::string(row.Text(1))};
}

absl::StatusOr<std::optional<SessionRow>> ReadOne(SqliteStatement* statement) {
  return RowCursor<SessionRow>(statement, ReadRow).Next();
}

absl::StatusOr<int64_t> ReadCount(SqliteStatement* statement) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> count,
                   RowCursor<int64_t>(statement, ReadKey).Next());
  if (count.has_value()) return *count;
  return absl::InternalError("session store: sessions cannot be counted");
}

}  // namespace

absl::StatusOr<SessionTable> SessionTable::Open(const SqliteDb& db, Lookup lookup) {
  SessionTable table;
  table.lookup_ = lookup;
  RETURN_IF_ERROR(table.PrepareReads(db));
  RETURN_IF_ERROR(table.PrepareWrites(db));
  return table;
}

absl::Status SessionTable::PrepareReads(const SqliteDb& db) {
  const auto select = [](absl::string_view rest) { return absl::StrCat(kColumns, rest); };
  // The subquery finds the key. So all columns are read from the table, and none from an index. The
  // id is searched as text and as a blob: if damage has turned the stored id into a blob, an index
  // that is built afterwards contains the blob.
  const auto by_id = [&](absl::string_view how) {
    return select(absl::StrCat("WHERE key = (SELECT key FROM sessions ", how,
                               " WHERE session_id IN (?1, CAST(?1 AS BLOB)) LIMIT 1)"));
  };
  const std::string by_index = by_id("");
  const std::string by_scan = by_id("NOT INDEXED");
  const std::string at = select("WHERE key = ?1");
  const std::string page = select("WHERE key < ?1 ORDER BY key DESC LIMIT ?2");
  const std::string page_of = select(
      "WHERE key IN (SELECT key FROM sessions WHERE principal = ?1 AND key < ?2 "
      "ORDER BY key DESC LIMIT ?3) ORDER BY key DESC");
  const std::string all = select("NOT INDEXED ORDER BY key");
  return db.PrepareAll({
      {&find_, lookup_ == Lookup::kScan ? by_scan : by_index},
      {&find_by_index_, by_index},
      {&at_, at},
      {&page_, page},
      {&page_of_, page_of},
      {&index_page_,
       "SELECT key, session_id FROM sessions INDEXED BY sqlite_autoindex_sessions_1 "
       "WHERE key < ?1 ORDER BY key DESC LIMIT ?2"},
      {&all_, all},
      {&unchanged_since_,
       "SELECT key FROM sessions "
       "WHERE update_us <= ?1 AND NOT (lease_until_us > ?2 AND lease_until_us <= ?4) "
       "ORDER BY update_us LIMIT ?3"},
      {&in_use_,
       "SELECT key FROM sessions WHERE lease_until_us <> 0 OR lease_request <> '' "
       "UNION SELECT session FROM turns WHERE finish = 0"},
      {&is_indexed_under_,
       "SELECT key FROM sessions INDEXED BY sessions_by_principal "
       "WHERE principal = ?1 AND key = ?2"},
      {&count_, "SELECT count(*) FROM sessions"},
      {&count_of_, "SELECT count(*) FROM sessions WHERE principal = ?1"},
  });
}

absl::Status SessionTable::PrepareWrites(const SqliteDb& db) {
  return db.PrepareAll({
      {&insert_,
       "INSERT INTO sessions (session_id, principal, model, model_digest, create_us, "
       "update_us, kind, token_count, turn_count, epoch, lease_request, lease_until_us, "
       "lease_body) VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0, 0, 0, 0, '', 0, '')"},
      {&update_,
       "UPDATE sessions SET kind = ?2, update_us = ?3, token_count = ?4, turn_count = ?5, "
       "epoch = ?6, lease_request = ?7, lease_until_us = ?8, lease_body = ?9, log_hash = ?10, "
       "turns_hash = ?11, seal = ?12 WHERE key = ?1"},
      {&delete_, "DELETE FROM sessions WHERE key = ?1"},
      // Each subquery reads only an index, not the table.
      {&restore_indexed_,
       "UPDATE sessions SET "
       "session_id = coalesce((SELECT session_id FROM sessions INDEXED BY "
       "sqlite_autoindex_sessions_1 WHERE key = ?1), session_id), "
       "principal = coalesce((SELECT principal FROM sessions INDEXED BY sessions_by_principal "
       "WHERE key = ?1), principal), "
       "update_us = coalesce((SELECT update_us FROM sessions INDEXED BY sessions_by_update "
       "WHERE key = ?1), update_us) "
       "WHERE key = ?1"},
      {&end_leases_, "UPDATE sessions SET lease_until_us = 0 WHERE lease_until_us <> 0"},
  });
}

absl::Status SessionTable::Insert(const NewSession& session, absl::Time created) {
  return insert_.Bind(1, session.session_id)
      .Bind(2, session.principal)
      .Bind(3, session.model)
      .Bind(4, session.model_digest)
      .Bind(5, absl::ToUnixMicros(created))
      .Run();
}

absl::Status SessionTable::Update(const SessionRow& row) {
  const std::string log_hash = row.log_hash.Bytes();
  const std::string turns_hash = row.turns_hash.Bytes();
  const std::string seal = row.seal.Bytes();
  return update_.Bind(1, row.key)
      .Bind(2, static_cast<int64_t>(row.info.kind))
      .Bind(3, absl::ToUnixMicros(row.info.update_time))
      .Bind(4, row.info.token_count)
      .Bind(5, int64_t{row.info.turn_count})
      .Bind(6, row.info.epoch)
      .Bind(7, row.lease_request)
      .Bind(8, row.lease_until_us)
      .Bind(9, row.lease_body)
      .BindBlob(10, log_hash)
      .BindBlob(11, turns_hash)
      .BindBlob(12, seal)
      .Run();
}

absl::Status SessionTable::Delete(int64_t key) { return delete_.Bind(1, key).Run(); }

absl::Status SessionTable::DeleteDamaged(int64_t key) {
  // SQLite uses the columns of a row to find its entries in the indexes. So first restore the
  // columns from the indexes.
  const TolerateIndexDamage tolerate(delete_);
  RETURN_IF_ERROR(restore_indexed_.Bind(1, key).Run());
  return Delete(key);
}

absl::Status SessionTable::EndLeases() { return end_leases_.Run(); }

absl::StatusOr<std::optional<SessionRow>> SessionTable::Find(absl::string_view session_id) {
  absl::StatusOr<std::optional<SessionRow>> row = ReadOne(&find_.Bind(1, session_id));
  if (lookup_ == Lookup::kScan && absl::IsDataLoss(row.status())) {
    row = ReadOne(&find_by_index_.Bind(1, session_id));
  }
  return row;
}

absl::StatusOr<std::optional<SessionRow>> SessionTable::At(int64_t key) {
  return ReadOne(&at_.Bind(1, key));
}

absl::StatusOr<bool> SessionTable::IsIndexedUnder(absl::string_view principal, int64_t key) {
  ASSIGN_OR_RETURN(
      const std::optional<int64_t> found,
      RowCursor<int64_t>(&is_indexed_under_.Bind(1, principal).Bind(2, key), ReadKey).Next());
  return found.has_value();
}

RowCursor<SessionRow> SessionTable::Page(int64_t before, int64_t limit) {
  return {&page_.Bind(1, before).Bind(2, limit), ReadRow};
}

RowCursor<SessionRow> SessionTable::PageOf(absl::string_view principal, int64_t before,
                                           int64_t limit) {
  return {&page_of_.Bind(1, principal).Bind(2, before).Bind(3, limit), ReadRow};
}

RowCursor<IndexedSession> SessionTable::IndexPage(int64_t before, int64_t limit) {
  return {&index_page_.Bind(1, before).Bind(2, limit), ReadIndexed};
}

RowCursor<SessionRow> SessionTable::All() { return {&all_, ReadRow}; }

RowCursor<int64_t> SessionTable::UnchangedSince(absl::Time latest, absl::Duration monotonic,
                                                int64_t limit) {
  return {&unchanged_since_.Bind(1, absl::ToUnixMicros(latest))
               .Bind(2, absl::ToInt64Microseconds(monotonic))
               .Bind(3, limit)
               .Bind(4, absl::ToInt64Microseconds(monotonic + kMaxLease)),
          ReadKey};
}

RowCursor<int64_t> SessionTable::InUse() { return {&in_use_, ReadKey}; }

absl::StatusOr<int64_t> SessionTable::Count() { return ReadCount(&count_); }

absl::StatusOr<int64_t> SessionTable::CountOf(absl::string_view principal) {
  return ReadCount(&count_of_.Bind(1, principal));
}

}  // namespace tidepool::service
