#include "service/store/session_tables.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

constexpr char kSessionColumns[] =
    "SELECT key, session_id, principal, model, model_digest, kind, create_us, update_us, "
    "token_count, turn_count, epoch, lease_request, lease_until_us, lease_body, log_hash, "
    "turns_hash, seal FROM sessions ";
constexpr char kSessionClasses[] = "ittttiiiiiititbbb";

SessionInfo ReadInfo(const SqliteStatement& row, const StoreTime& now) {
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
  info.busy = row.Int(12) > absl::ToInt64Microseconds(now.monotonic);
  return info;
}

absl::Status PrepareAll(
    const SqliteDb& db,
    std::initializer_list<std::pair<SqliteStatement*, absl::string_view>> statements) {
  for (const auto& [statement, sql] : statements) {
    ASSIGN_OR_RETURN(*statement, db.Prepare(sql));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionTables>> SessionTables::Create(const SqliteDb& db,
                                                                     StoreLedger* ledger,
                                                                     int64_t max_sessions,
                                                                     Lookup lookup) {
  auto tables = std::unique_ptr<SessionTables>(new SessionTables());
  tables->ledger_ = ledger;
  tables->max_sessions_ = max_sessions;
  tables->lookup_ = lookup;
  RETURN_IF_ERROR(tables->PrepareForSessions(db));
  RETURN_IF_ERROR(tables->PrepareForLogs(db));
  RETURN_IF_ERROR(tables->PrepareForRepairs(db));
  return tables;
}

absl::Status SessionTables::PrepareForSessions(const SqliteDb& db) {
  const auto select = [](absl::string_view rest) { return absl::StrCat(kSessionColumns, rest); };
  // By way of the key, so that all columns are read from the table and none from an index. A name
  // whose class is damaged is found too: an index that was made from it has it as a blob.
  const auto by_id = [&](absl::string_view how) {
    return select(absl::StrCat("WHERE key = (SELECT key FROM sessions ", how,
                               " WHERE session_id IN (?1, CAST(?1 AS BLOB)) LIMIT 1)"));
  };
  const std::string by_index = by_id("");
  const std::string by_scan = by_id("NOT INDEXED");
  const std::string by_key = select("WHERE key = ?1");
  const std::string page = select(
      "WHERE key IN (SELECT key FROM sessions WHERE principal = ?1 AND key < ?2 "
      "ORDER BY key DESC LIMIT ?3) ORDER BY key DESC");
  const std::string all = select("WHERE key < ?2 ORDER BY key DESC LIMIT ?3");
  const std::string scan = select("NOT INDEXED ORDER BY key");
  return PrepareAll(
      db,
      {
          {&insert_session_,
           "INSERT INTO sessions (session_id, principal, model, model_digest, create_us, "
           "update_us, kind, token_count, turn_count, epoch, lease_request, lease_until_us, "
           "lease_body) VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0, 0, 0, 0, '', 0, '')"},
          {&find_session_, lookup_ == Lookup::kScan ? by_scan : by_index},
          {&find_by_index_, by_index},
          {&find_key_, by_key},
          {&list_sessions_, page},
          {&list_all_, all},
          {&list_index_,
           "SELECT key, session_id FROM sessions INDEXED BY sqlite_autoindex_sessions_1 "
           "WHERE key < ?1 ORDER BY key DESC LIMIT ?2"},
          {&scan_, scan},
          {&count_owned_, "SELECT count(*) FROM sessions WHERE principal = ?1"},
          {&find_expired_,
           "SELECT key FROM sessions WHERE update_us <= ?1 AND lease_until_us <= ?2 "
           "ORDER BY update_us LIMIT ?3"},
          {&count_sessions_, "SELECT count(*) FROM sessions"},
          {&delete_session_, "DELETE FROM sessions WHERE key = ?1"},
          {&save_session_,
           "UPDATE sessions SET kind = ?2, update_us = ?3, token_count = ?4, turn_count = ?5, "
           "epoch = ?6, lease_request = ?7, lease_until_us = ?8, lease_body = ?9, log_hash = ?10, "
           "turns_hash = ?11, seal = ?12 WHERE key = ?1"},
      });
}

absl::Status SessionTables::PrepareForLogs(const SqliteDb& db) {
  return PrepareAll(
      db,
      {
          {&delete_turns_, "DELETE FROM turns WHERE session = ?1"},
          {&delete_chunks_, "DELETE FROM chunks WHERE session = ?1"},
          {&read_turns_,
           "SELECT request_id, start, output_start, end, messages, answer, finish, body, "
           "numerics_id, hash, turn FROM turns WHERE session = ?1 ORDER BY turn LIMIT ?2"},
          {&turn_at_,
           "SELECT request_id, start, output_start, end, messages, answer, finish, body, "
           "numerics_id, hash, turn FROM turns WHERE session = ?1 AND turn = ?2"},
          {&insert_turn_,
           "INSERT INTO turns (session, turn, request_id, start, output_start, messages, end, "
           "answer, finish, body, numerics_id, hash) "
           "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"},
          {&change_turn_,
           "UPDATE turns SET end = ?3, answer = ?4, finish = ?5, numerics_id = ?6, hash = ?7 "
           "WHERE session = ?1 AND turn = ?2"},
          {&read_chunks_,
           "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 ORDER BY start"},
          {&chunk_at_,
           "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start = ?2"},
          {&chunk_before_,
           "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start < ?2 "
           "ORDER BY start DESC LIMIT 1"},
          {&read_text_,
           "SELECT text FROM chunks WHERE session = ?1 AND start >= ?2 ORDER BY start"},
          {&cut_chunks_, "DELETE FROM chunks WHERE session = ?1 AND start >= ?2"},
          {&write_chunk_,
           "INSERT INTO chunks (session, start, tokens, text, hash) VALUES (?1, ?2, ?3, ?4, ?5) "
           "ON CONFLICT DO UPDATE SET tokens = ?3, text = ?4, hash = ?5"},
          {&clear_text_, "UPDATE chunks SET text = '' WHERE session = ?1 AND start >= ?2"},
          {&chunks_from_,
           "SELECT start, tokens, text, hash FROM chunks WHERE session = ?1 AND start >= ?2 "
           "ORDER BY start"},
      });
}

absl::Status SessionTables::PrepareForRepairs(const SqliteDb& db) {
  return PrepareAll(
      db, {
              {&leased_,
               "SELECT key FROM sessions WHERE lease_until_us <> 0 "
               "OR lease_request <> '' UNION SELECT session FROM turns "
               "WHERE finish = 0"},
              {&hash_chunk_, "UPDATE chunks SET hash = ?3 WHERE session = ?1 AND start = ?2"},
              {&hash_turn_, "UPDATE turns SET hash = ?3 WHERE session = ?1 AND turn = ?2"},
          });
}

SessionTables::Row SessionTables::ReadRow(const SqliteStatement& row, const StoreTime& now) {
  return {.key = row.Int(0),
          .lease_request = std::string(row.Text(11)),
          .lease_body = std::string(row.Text(13)),
          .lease_until_us = row.Int(12),
          .info = ReadInfo(row, now),
          .log_hash = Hash128::FromBytes(row.Text(14)),
          .turns_hash = Hash128::FromBytes(row.Text(15)),
          .seal = Hash128::FromBytes(row.Text(16)),
          .classes_fit = row.HasClasses(kSessionClasses)};
}

Hash128 SessionTables::SealOf(const Row& row) {
  const SessionInfo& info = row.info;
  return RowHasher("session")
      .Add(row.key)
      .Add(info.session_id)
      .Add(info.principal)
      .Add(info.model)
      .Add(info.model_digest)
      .Add(static_cast<int64_t>(info.kind))
      .Add(absl::ToUnixMicros(info.create_time))
      .Add(absl::ToUnixMicros(info.update_time))
      .Add(info.token_count)
      .Add(int64_t{info.turn_count})
      .Add(info.epoch)
      .Add(row.lease_request)
      .Add(row.lease_body)
      .Add(row.log_hash)
      .Add(row.turns_hash)
      .Finish();
}

absl::Status SessionTables::CheckRow(const Row& row) {
  if (!row.classes_fit) {
    return SessionDamaged(row.info.session_id, "a column of its row has the wrong type");
  }
  if (row.seal == SealOf(row)) return absl::OkStatus();
  return SessionDamaged(row.info.session_id, "its row does not match its seal");
}

absl::StatusOr<SessionTables::Row> SessionTables::FindAny(absl::string_view session_id,
                                                          const StoreTime& now) {
  SqliteStatement* find = &find_session_;
  absl::StatusOr<bool> found = find->Bind(1, session_id).Step();
  if (lookup_ == Lookup::kScan && absl::IsDataLoss(found.status())) {
    find = &find_by_index_;
    found = find->Bind(1, session_id).Step();
  }
  RETURN_IF_ERROR(found.status());
  if (!*found) return NoSuchSession(session_id);
  Row row = ReadRow(*find, now);
  find->Reset();
  // The index led to another row.
  if (row.info.session_id != session_id) {
    return SessionDamaged(session_id, "the index of sessions does not match them");
  }
  return row;
}

absl::StatusOr<SessionTables::Row> SessionTables::FindKey(int64_t key, const StoreTime& now) {
  ASSIGN_OR_RETURN(const bool found, find_key_.Bind(1, key).Step());
  if (!found) {
    return absl::DataLossError("session store: an index contains a session that does not exist");
  }
  Row row = ReadRow(find_key_, now);
  find_key_.Reset();
  RETURN_IF_ERROR(CheckRow(row));
  return row;
}

absl::StatusOr<SessionTables::Row> SessionTables::Find(absl::string_view session_id,
                                                       const StoreTime& now) {
  ASSIGN_OR_RETURN(Row row, FindAny(session_id, now));
  RETURN_IF_ERROR(CheckRow(row));
  return row;
}

absl::StatusOr<SessionTables::Row> SessionTables::FindOwned(absl::string_view principal,
                                                            absl::string_view session_id,
                                                            const StoreTime& now) {
  ASSIGN_OR_RETURN(Row row, Find(session_id, now));
  if (row.info.principal != principal) return NoSuchSession(session_id);
  return row;
}

absl::Status SessionTables::Save(Row* row) {
  const Hash128 before = row->seal;
  row->seal = SealOf(*row);
  ledger_->ReplaceSeal(before, row->seal);
  const std::string log_hash = row->log_hash.Bytes();
  const std::string turns_hash = row->turns_hash.Bytes();
  const std::string seal = row->seal.Bytes();
  save_session_.Bind(1, row->key)
      .Bind(2, static_cast<int64_t>(row->info.kind))
      .Bind(3, absl::ToUnixMicros(row->info.update_time))
      .Bind(4, row->info.token_count)
      .Bind(5, int64_t{row->info.turn_count})
      .Bind(6, row->info.epoch)
      .Bind(7, row->lease_request)
      .Bind(8, row->lease_until_us)
      .Bind(9, row->lease_body)
      .BindBlob(10, log_hash)
      .BindBlob(11, turns_hash)
      .BindBlob(12, seal);
  return save_session_.Run();
}

absl::Status SessionTables::CheckQuota(absl::string_view principal) {
  if (max_sessions_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool row, count_owned_.Bind(1, principal).Step());
  const int64_t have = row ? count_owned_.Int(0) : 0;
  count_owned_.Reset();
  return have < max_sessions_ ? absl::OkStatus() : TooManySessions(have);
}

absl::StatusOr<SessionInfo> SessionTables::Create(const NewSession& session, const StoreTime& now) {
  const absl::StatusOr<Row> taken = FindAny(session.session_id, now);
  if (taken.ok()) return SessionIdTaken(session.session_id);
  if (!absl::IsNotFound(taken.status())) return taken.status();
  RETURN_IF_ERROR(CheckQuota(session.principal));
  insert_session_.Bind(1, session.session_id)
      .Bind(2, session.principal)
      .Bind(3, session.model)
      .Bind(4, session.model_digest)
      .Bind(5, absl::ToUnixMicros(now.wall));
  RETURN_IF_ERROR(insert_session_.Run());
  ASSIGN_OR_RETURN(Row row, FindAny(session.session_id, now));
  row.log_hash = LogStart(row);
  row.turns_hash = TurnsStart(row);
  ledger_->AddSession(row.seal);
  RETURN_IF_ERROR(Save(&row));
  return std::move(row.info);
}

absl::StatusOr<SessionInfo> SessionTables::Insert(const SessionLogData& session,
                                                  const StoreTime& now) {
  const SessionInfo& info = session.info;
  RETURN_IF_ERROR(Create({.session_id = info.session_id,
                          .principal = info.principal,
                          .model = info.model,
                          .model_digest = info.model_digest},
                         StoreTime{.wall = info.create_time, .monotonic = now.monotonic})
                      .status());
  ASSIGN_OR_RETURN(Row row, Find(info.session_id, now));
  RETURN_IF_ERROR(AddLog(&row, session));
  RETURN_IF_ERROR(Save(&row));
  return std::move(row.info);
}

absl::StatusOr<SessionInfo> SessionTables::Replace(const SessionLogData& session,
                                                   const StoreTime& now) {
  const SessionInfo& info = session.info;
  ASSIGN_OR_RETURN(Row row, FindOwned(info.principal, info.session_id, now));
  if (row.info.busy) return SessionBusy(info.session_id, row.lease_request);
  if (row.info.epoch != info.epoch) return SessionChanged(info.session_id);
  RETURN_IF_ERROR(delete_chunks_.Bind(1, row.key).Run());
  RETURN_IF_ERROR(delete_turns_.Bind(1, row.key).Run());
  row.info.token_count = 0;
  row.info.turn_count = 0;
  row.log_hash = LogStart(row);
  row.turns_hash = TurnsStart(row);
  RETURN_IF_ERROR(AddLog(&row, session));
  ++row.info.epoch;
  RETURN_IF_ERROR(Save(&row));
  return std::move(row.info);
}

absl::StatusOr<SessionLogData> SessionTables::Get(const std::optional<std::string>& principal,
                                                  absl::string_view session_id,
                                                  const StoreTime& now) {
  ASSIGN_OR_RETURN(const Row row, principal.has_value() ? FindOwned(*principal, session_id, now)
                                                        : Find(session_id, now));
  SessionLogData log;
  RETURN_IF_ERROR(ReadLog(row, &log));
  EndAbandonedTurn(&log);
  return log;
}

absl::StatusOr<SessionPage> SessionTables::List(const std::optional<std::string>& principal,
                                                int page_size, absl::string_view page_token,
                                                const StoreTime& now) {
  int64_t before = INT64_MAX;
  if (!page_token.empty() && (!absl::SimpleAtoi(page_token, &before) || before < 1)) {
    return absl::InvalidArgumentError("page_token did not come from ListSessions");
  }
  SqliteStatement& rows = principal.has_value() ? list_sessions_ : list_all_;
  if (principal.has_value()) rows.Bind(1, *principal);
  rows.Bind(2, before).Bind(3, int64_t{page_size} + 1);
  SessionPage page;
  int64_t last_key = 0;
  while (true) {
    const absl::StatusOr<bool> more = rows.Step();
    if (lookup_ == Lookup::kScan && !principal.has_value() && absl::IsDataLoss(more.status())) {
      absl::StatusOr<SessionPage> named = ListByIndex(page_size, before, now);
      if (!absl::IsDataLoss(named.status())) return named;
    }
    RETURN_IF_ERROR(more.status());
    if (!*more) return page;
    if (static_cast<int>(page.sessions.size()) == page_size) {
      page.next_page_token = absl::StrCat(last_key);
      rows.Reset();
      return page;
    }
    last_key = rows.Int(0);
    Row row = ReadRow(rows, now);
    absl::Status whole = CheckRow(row);
    if (!whole.ok()) row.info = DescribeDamage(row, std::move(whole), now);
    page.sessions.push_back(std::move(row.info));
  }
}

absl::Status SessionTables::Delete(absl::string_view principal, absl::string_view session_id,
                                   const StoreTime& now, Rows rows) {
  ASSIGN_OR_RETURN(const Row row, FindAny(session_id, now));
  if (row.info.principal != principal) return NoSuchSession(session_id);
  if (row.info.busy) return SessionBusy(session_id, row.lease_request);
  // Before it reads anything: after a page that SQLite cannot read, it deletes nothing.
  if (rows == Rows::kSession) return DeleteRow(row, rows);
  SessionLogData log;
  const bool whole = CheckRow(row).ok() && ReadLog(row, &log).ok();
  return whole ? DeleteRow(row, rows) : DeleteDamaged(row, now);
}

absl::Status SessionTables::DeleteRow(const Row& row, Rows rows) {
  if (rows == Rows::kAll) {
    RETURN_IF_ERROR(delete_chunks_.Bind(1, row.key).Run());
    RETURN_IF_ERROR(delete_turns_.Bind(1, row.key).Run());
  }
  RETURN_IF_ERROR(delete_session_.Bind(1, row.key).Run());
  if (CheckRow(row).ok()) {
    ledger_->RemoveSession(row.seal);
    return absl::OkStatus();
  }
  // What the ledger had of it is not known.
  const SessionScan scan = Scan();
  RETURN_IF_ERROR(scan.end);
  ledger_->Recount(scan.sessions, scan.sum);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SessionTables::Expire(absl::Duration age, int64_t most,
                                              const StoreTime& now) {
  const int64_t latest_us = absl::ToUnixMicros(now.expiry - age);
  find_expired_.Bind(1, latest_us).Bind(2, absl::ToInt64Microseconds(now.monotonic)).Bind(3, most);
  std::vector<int64_t> keys;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, find_expired_.Step());
    if (!more) break;
    keys.push_back(find_expired_.Int(0));
  }
  int64_t gone = 0;
  for (const int64_t key : keys) {
    // An index and a row that are damaged name no time to go by.
    const absl::StatusOr<Row> row = FindKey(key, now);
    if (absl::IsDataLoss(row.status())) continue;
    RETURN_IF_ERROR(row.status());
    if (absl::ToUnixMicros(row->info.update_time) > latest_us) continue;
    RETURN_IF_ERROR(DeleteRow(*row, Rows::kAll));
    ++gone;
  }
  return gone;
}

absl::StatusOr<int64_t> SessionTables::Count() {
  ASSIGN_OR_RETURN(const bool row, count_sessions_.Step());
  if (!row) return absl::InternalError("session store: sessions cannot be counted");
  const int64_t count = count_sessions_.Int(0);
  count_sessions_.Reset();
  return count;
}

absl::StatusOr<OpenTurn> SessionTables::BeginTurn(const TurnRequest& turn, const StoreTime& now) {
  ASSIGN_OR_RETURN(Row row, FindOwned(turn.principal, turn.session_id, now));
  if (row.info.busy && row.lease_request != turn.request_id) {
    return SessionBusy(turn.session_id, row.lease_request);
  }
  OpenTurn open;
  // All of it, before anything follows from it.
  RETURN_IF_ERROR(ReadLog(row, &open.log));
  RETURN_IF_ERROR(CheckBody(row, open.log, turn));
  const std::pair<Hash128, Hash128> read(row.log_hash, row.turns_hash);
  ASSIGN_OR_RETURN(const bool goes_on, ReopenTurn(&row, open.log, turn.request_id));
  if (!goes_on) {
    // Of a front that lost the lease in the middle of its turn.
    RETURN_IF_ERROR(UpdateRunningTurn(&row, TurnFinish::kCancelled, ""));
  }
  ++row.info.epoch;
  row.lease_request = turn.request_id;
  row.lease_until_us = absl::ToInt64Microseconds(now.monotonic + turn.lease);
  row.lease_body = turn.body_digest;
  RETURN_IF_ERROR(Save(&row));
  open.epoch = row.info.epoch;
  open.log.info = row.info;
  if (read == std::pair(row.log_hash, row.turns_hash)) return open;
  open.log = {};
  RETURN_IF_ERROR(ReadLog(row, &open.log));
  return open;
}

absl::Status SessionTables::RenewLease(absl::string_view session_id, int64_t epoch,
                                       absl::Duration until) {
  ASSIGN_OR_RETURN(Row row, Find(session_id, StoreTime()));
  if (row.info.epoch != epoch || row.lease_request.empty()) return LeaseLost(session_id);
  row.lease_until_us = absl::ToInt64Microseconds(until);
  return Save(&row);
}

absl::Status SessionTables::ReleaseLease(absl::string_view session_id, int64_t epoch) {
  ASSIGN_OR_RETURN(Row row, Find(session_id, StoreTime()));
  if (row.info.epoch != epoch) return absl::OkStatus();
  row.lease_request.clear();
  row.lease_until_us = 0;
  return Save(&row);
}

}  // namespace tidepool::service
