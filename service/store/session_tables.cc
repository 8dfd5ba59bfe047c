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

// Of a log that is written at once: a cut rewrites no more than this.
constexpr int64_t kChunkTokens = 1024;

constexpr char kSessionColumns[] =
    "SELECT key, session_id, principal, model, model_digest, kind, create_us, update_us, "
    "token_count, turn_count, epoch, lease_request, lease_until_us, lease_body FROM sessions ";

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
                                                                     int64_t max_sessions) {
  auto tables = std::unique_ptr<SessionTables>(new SessionTables());
  tables->max_sessions_ = max_sessions;
  RETURN_IF_ERROR(tables->PrepareForSessions(db));
  RETURN_IF_ERROR(tables->PrepareForLogs(db));
  return tables;
}

absl::Status SessionTables::PrepareForSessions(const SqliteDb& db) {
  const std::string by_id = absl::StrCat(kSessionColumns, "WHERE session_id = ?1");
  const std::string page =
      absl::StrCat(kSessionColumns, "WHERE principal = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3");
  const std::string all =
      absl::StrCat(kSessionColumns, "WHERE key < ?2 ORDER BY key DESC LIMIT ?3");
  return PrepareAll(
      db, {
              {&insert_session_,
               "INSERT INTO sessions "
               "(session_id, principal, model, model_digest, create_us, update_us) "
               "VALUES (?1, ?2, ?3, ?4, ?5, ?5)"},
              {&find_session_, by_id},
              {&list_sessions_, page},
              {&list_all_, all},
              {&count_owned_, "SELECT count(*) FROM sessions WHERE principal = ?1"},
              {&find_expired_,
               "SELECT key FROM sessions WHERE update_us <= ?1 AND lease_until_us <= ?2 "
               "ORDER BY update_us LIMIT ?3"},
              {&count_sessions_, "SELECT count(*) FROM sessions"},
              {&delete_session_, "DELETE FROM sessions WHERE key = ?1"},
              {&take_lease_,
               "UPDATE sessions SET epoch = epoch + 1, lease_request = ?2, lease_until_us = ?3, "
               "lease_body = ?4 WHERE key = ?1"},
              {&renew_lease_, "UPDATE sessions SET lease_until_us = ?2 WHERE key = ?1"},
              {&drop_lease_,
               "UPDATE sessions SET lease_request = '', lease_until_us = 0 WHERE key = ?1"},
              {&drop_all_leases_,
               "UPDATE sessions SET lease_request = '', lease_until_us = 0 "
               "WHERE lease_until_us > 0"},
              {&update_session_,
               "UPDATE sessions SET kind = ?2, update_us = ?3, token_count = ?4, turn_count = ?5 "
               "WHERE key = ?1"},
              {&raise_epoch_, "UPDATE sessions SET epoch = epoch + 1 WHERE key = ?1"},
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
           "numerics_id FROM turns WHERE session = ?1 ORDER BY turn"},
          {&body_of_turn_,
           "SELECT body FROM turns WHERE session = ?1 AND request_id = ?2 ORDER BY turn LIMIT 1"},
          {&read_chunks_, "SELECT tokens, start FROM chunks WHERE session = ?1 ORDER BY start"},
          {&read_text_,
           "SELECT text FROM chunks WHERE session = ?1 AND start >= ?2 ORDER BY start"},
          {&chunk_over_,
           "SELECT start, tokens FROM chunks WHERE session = ?1 AND start < ?2 "
           "ORDER BY start DESC LIMIT 1"},
          {&cut_chunks_, "DELETE FROM chunks WHERE session = ?1 AND start >= ?2"},
          {&insert_turn_,
           "INSERT INTO turns (session, turn, request_id, start, output_start, messages, end, "
           "answer, finish, body, numerics_id) "
           "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"},
          {&set_numerics_,
           "UPDATE turns SET numerics_id = ?2 WHERE session = ?1 AND finish = 0"},
          {&running_turn_,
           "SELECT turn, output_start FROM turns WHERE session = ?1 AND finish = 0"},
          {&finish_turn_,
           "UPDATE turns SET end = ?3, answer = ?4, finish = ?5 WHERE session = ?1 AND turn = ?2"},
          {&insert_chunk_,
           "INSERT INTO chunks (session, start, tokens, text) VALUES (?1, ?2, ?3, ?4) "
           "ON CONFLICT DO UPDATE SET tokens = excluded.tokens, text = text || excluded.text"},
          {&last_turn_,
           "SELECT request_id, output_start, end, answer, finish FROM turns "
           "WHERE session = ?1 AND turn = ?2"},
          {&clear_text_, "UPDATE chunks SET text = '' WHERE session = ?1 AND start >= ?2"},
          {&reopen_turn_,
           "UPDATE turns SET end = 0, answer = '', finish = 0 WHERE session = ?1 AND turn = ?2"},
          {&interrupted_,
           "SELECT s.key, s.token_count FROM turns t JOIN sessions s ON s.key = t.session "
           "WHERE t.finish = 0"},
      });
}

absl::StatusOr<SessionTables::Row> SessionTables::Find(absl::string_view session_id,
                                                       const StoreTime& now) {
  find_session_.Bind(1, session_id);
  ASSIGN_OR_RETURN(const bool found, find_session_.Step());
  if (!found) return NoSuchSession(session_id);
  Row row;
  row.key = find_session_.Int(0);
  row.info = ReadInfo(find_session_, now);
  row.lease_request = std::string(find_session_.Text(11));
  row.lease_body = std::string(find_session_.Text(13));
  find_session_.Reset();
  return row;
}

absl::StatusOr<SessionTables::Row> SessionTables::FindOwned(absl::string_view principal,
                                                            absl::string_view session_id,
                                                            const StoreTime& now) {
  ASSIGN_OR_RETURN(Row row, Find(session_id, now));
  if (row.info.principal != principal) return NoSuchSession(session_id);
  return row;
}

absl::Status SessionTables::CheckQuota(absl::string_view principal) {
  if (max_sessions_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool row, count_owned_.Bind(1, principal).Step());
  const int64_t have = row ? count_owned_.Int(0) : 0;
  count_owned_.Reset();
  return have < max_sessions_ ? absl::OkStatus() : TooManySessions(have);
}

absl::StatusOr<SessionInfo> SessionTables::Create(const NewSession& session, const StoreTime& now) {
  const absl::StatusOr<Row> taken = Find(session.session_id, now);
  if (taken.ok()) return SessionIdTaken(session.session_id);
  if (!absl::IsNotFound(taken.status())) return taken.status();
  RETURN_IF_ERROR(CheckQuota(session.principal));
  insert_session_.Bind(1, session.session_id)
      .Bind(2, session.principal)
      .Bind(3, session.model)
      .Bind(4, session.model_digest)
      .Bind(5, absl::ToUnixMicros(now.wall));
  RETURN_IF_ERROR(insert_session_.Run());
  ASSIGN_OR_RETURN(Row row, Find(session.session_id, now));
  return std::move(row.info);
}

absl::Status SessionTables::InsertLog(int64_t key, const SessionLogData& session) {
  const auto& tokens = session.token_ids;
  const int64_t count = static_cast<int64_t>(tokens.size());
  for (int64_t start = 0; start < count; start += kChunkTokens) {
    const int64_t size = std::min(kChunkTokens, count - start);
    RETURN_IF_ERROR(InsertChunk(key, start, absl::MakeConstSpan(tokens).subspan(start, size), ""));
  }
  for (size_t i = 0; i < session.turns.size(); ++i) {
    StoredTurn turn = session.turns[i];
    if (turn.finish == TurnFinish::kRunning) turn.finish = TurnFinish::kCancelled;
    RETURN_IF_ERROR(InsertTurn(key, static_cast<int64_t>(i), turn));
  }
  const int64_t turns = static_cast<int64_t>(session.turns.size());
  update_session_.Bind(1, key)
      .Bind(2, static_cast<int64_t>(session.info.kind))
      .Bind(3, absl::ToUnixMicros(session.info.update_time))
      .Bind(4, count)
      .Bind(5, turns);
  return update_session_.Run();
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
  RETURN_IF_ERROR(InsertLog(row.key, session));
  ASSIGN_OR_RETURN(row, Find(info.session_id, now));
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
  RETURN_IF_ERROR(InsertLog(row.key, session));
  RETURN_IF_ERROR(raise_epoch_.Bind(1, row.key).Run());
  ASSIGN_OR_RETURN(row, Find(info.session_id, now));
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
    return absl::InvalidArgumentError("page_token is not one that ListSessions gave");
  }
  SqliteStatement& rows = principal.has_value() ? list_sessions_ : list_all_;
  if (principal.has_value()) rows.Bind(1, *principal);
  rows.Bind(2, before).Bind(3, int64_t{page_size} + 1);
  SessionPage page;
  int64_t last_key = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return page;
    if (static_cast<int>(page.sessions.size()) == page_size) {
      page.next_page_token = absl::StrCat(last_key);
      rows.Reset();
      return page;
    }
    last_key = rows.Int(0);
    page.sessions.push_back(ReadInfo(rows, now));
  }
}

absl::Status SessionTables::Delete(absl::string_view principal, absl::string_view session_id,
                                   const StoreTime& now) {
  ASSIGN_OR_RETURN(const Row row, FindOwned(principal, session_id, now));
  if (row.info.busy) return SessionBusy(session_id, row.lease_request);
  return DeleteRow(row.key);
}

absl::Status SessionTables::DeleteRow(int64_t key) {
  RETURN_IF_ERROR(delete_chunks_.Bind(1, key).Run());
  RETURN_IF_ERROR(delete_turns_.Bind(1, key).Run());
  return delete_session_.Bind(1, key).Run();
}

absl::StatusOr<int64_t> SessionTables::Expire(absl::Duration age, int64_t most,
                                              const StoreTime& now) {
  find_expired_.Bind(1, absl::ToUnixMicros(now.expiry - age))
      .Bind(2, absl::ToInt64Microseconds(now.monotonic))
      .Bind(3, most);
  std::vector<int64_t> keys;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, find_expired_.Step());
    if (!more) break;
    keys.push_back(find_expired_.Int(0));
  }
  for (const int64_t key : keys) RETURN_IF_ERROR(DeleteRow(key));
  return static_cast<int64_t>(keys.size());
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
  RETURN_IF_ERROR(CheckBody(row, turn));
  ASSIGN_OR_RETURN(const bool goes_on, ReopenTurn(row, turn.request_id));
  if (!goes_on) {
    // Of a front that lost the lease in the middle of its turn.
    RETURN_IF_ERROR(FinishRunningTurn(row.key, row.info.token_count, TurnFinish::kCancelled));
  }
  take_lease_.Bind(1, row.key)
      .Bind(2, turn.request_id)
      .Bind(3, absl::ToInt64Microseconds(now.monotonic + turn.lease))
      .Bind(4, turn.body_digest);
  RETURN_IF_ERROR(take_lease_.Run());
  OpenTurn open;
  open.epoch = ++row.info.epoch;
  RETURN_IF_ERROR(ReadLog(row, &open.log));
  return open;
}

absl::Status SessionTables::RenewLease(absl::string_view session_id, int64_t epoch,
                                       absl::Duration until) {
  ASSIGN_OR_RETURN(const Row row, Find(session_id, StoreTime()));
  if (row.info.epoch != epoch || row.lease_request.empty()) return LeaseLost(session_id);
  return renew_lease_.Bind(1, row.key).Bind(2, absl::ToInt64Microseconds(until)).Run();
}

absl::Status SessionTables::ReleaseLease(absl::string_view session_id, int64_t epoch) {
  ASSIGN_OR_RETURN(const Row row, Find(session_id, StoreTime()));
  if (row.info.epoch != epoch) return absl::OkStatus();
  return drop_lease_.Bind(1, row.key).Run();
}

}  // namespace tidepool::service
