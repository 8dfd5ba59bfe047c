#include "service/store/session_tables.h"

#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/message_json.h"

namespace tidepool::service {
namespace {

// "TPL1", so that another program's database is not taken for ours.
constexpr int64_t kApplicationId = 0x54504c31;

// A turn that runs has no end and no answer yet: both follow from the log. The log's pieces are
// rows of their own, so that appending never rewrites what is there.
constexpr char kSchema[] = R"(
CREATE TABLE sessions (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  model TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  kind INTEGER NOT NULL DEFAULT 0,
  create_us INTEGER NOT NULL,
  update_us INTEGER NOT NULL,
  token_count INTEGER NOT NULL DEFAULT 0,
  turn_count INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL DEFAULT 0,
  lease_request TEXT NOT NULL DEFAULT '',
  lease_until_us INTEGER NOT NULL DEFAULT 0);
CREATE INDEX sessions_by_principal ON sessions (principal, key);
CREATE TABLE turns (
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  start INTEGER NOT NULL,
  output_start INTEGER NOT NULL,
  end INTEGER NOT NULL DEFAULT 0,
  messages TEXT NOT NULL,
  answer TEXT NOT NULL DEFAULT '',
  finish INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session, turn)) WITHOUT ROWID;
CREATE INDEX running_turns ON turns (session) WHERE finish = 0;
CREATE TABLE chunks (
  session INTEGER NOT NULL,
  start INTEGER NOT NULL,
  tokens BLOB NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (session, start)) WITHOUT ROWID;
)";

constexpr char kSessionColumns[] =
    "SELECT key, session_id, principal, model, model_digest, kind, create_us, update_us, "
    "token_count, turn_count, epoch, lease_request, lease_until_us FROM sessions ";

SessionInfo ReadInfo(const SqliteStatement& row, absl::Time now) {
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
  info.busy = row.Int(12) > absl::ToUnixMicros(now);
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

absl::Status NotFound(absl::string_view session_id) {
  return absl::NotFoundError(
      absl::StrCat("session '", session_id, "' does not exist; CreateSession makes one"));
}

absl::Status LeaseLost(absl::string_view session_id) {
  return absl::AbortedError(
      absl::StrCat("session '", session_id, "': another turn took it over; retry"));
}

}  // namespace

absl::Status CreateOrCheckSchema(const SqliteDb& db) {
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (version == 0 && tables == 0) {
    RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
    RETURN_IF_ERROR(db.Execute(kSchema));
    RETURN_IF_ERROR(db.Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId).c_str()));
    RETURN_IF_ERROR(
        db.Execute(absl::StrCat("PRAGMA user_version = ", kSessionSchemaVersion).c_str()));
    return db.Execute("COMMIT");
  }
  if (application != kApplicationId) {
    return absl::FailedPreconditionError("it is a database of another program");
  }
  if (version > kSessionSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("its schema version is ", version, ", this program knows versions up to ",
                     kSessionSchemaVersion, ": use a newer program"));
  }
  return absl::OkStatus();
}

std::string PackTokens(absl::Span<const int32_t> tokens) {
  std::string bytes(tokens.size() * 4, '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t id = static_cast<uint32_t>(tokens[i]);
    for (int byte = 0; byte < 4; ++byte) bytes[i * 4 + byte] = static_cast<char>(id >> (8 * byte));
  }
  return bytes;
}

absl::Status UnpackTokens(absl::string_view bytes, std::vector<int32_t>* tokens) {
  if (bytes.size() % 4 != 0) {
    return absl::InternalError("session store: a piece of the token log is damaged");
  }
  tokens->reserve(tokens->size() + bytes.size() / 4);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t id = 0;
    for (int byte = 0; byte < 4; ++byte) {
      id |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i + byte])) << (8 * byte);
    }
    tokens->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SessionTables>> SessionTables::Create(const SqliteDb& db) {
  auto tables = std::unique_ptr<SessionTables>(new SessionTables());
  RETURN_IF_ERROR(tables->PrepareForSessions(db));
  RETURN_IF_ERROR(tables->PrepareForLogs(db));
  return tables;
}

absl::Status SessionTables::PrepareForSessions(const SqliteDb& db) {
  const std::string by_id = absl::StrCat(kSessionColumns, "WHERE session_id = ?1");
  const std::string page =
      absl::StrCat(kSessionColumns, "WHERE principal = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3");
  return PrepareAll(
      db, {
              {&insert_session_,
               "INSERT INTO sessions "
               "(session_id, principal, model, model_digest, create_us, update_us) "
               "VALUES (?1, ?2, ?3, ?4, ?5, ?5)"},
              {&find_session_, by_id},
              {&list_sessions_, page},
              {&count_sessions_, "SELECT count(*) FROM sessions"},
              {&delete_session_, "DELETE FROM sessions WHERE key = ?1"},
              {&take_lease_,
               "UPDATE sessions SET epoch = epoch + 1, lease_request = ?2, lease_until_us = ?3 "
               "WHERE key = ?1"},
              {&renew_lease_, "UPDATE sessions SET lease_until_us = ?2 WHERE key = ?1"},
              {&drop_lease_,
               "UPDATE sessions SET lease_request = '', lease_until_us = 0 WHERE key = ?1"},
              {&drop_all_leases_,
               "UPDATE sessions SET lease_request = '', lease_until_us = 0 "
               "WHERE lease_until_us > 0"},
              {&update_session_,
               "UPDATE sessions SET kind = ?2, update_us = ?3, token_count = ?4, turn_count = ?5 "
               "WHERE key = ?1"},
          });
}

absl::Status SessionTables::PrepareForLogs(const SqliteDb& db) {
  return PrepareAll(
      db,
      {
          {&delete_turns_, "DELETE FROM turns WHERE session = ?1"},
          {&delete_chunks_, "DELETE FROM chunks WHERE session = ?1"},
          {&read_turns_,
           "SELECT request_id, start, output_start, end, messages, answer, finish FROM turns "
           "WHERE session = ?1 ORDER BY turn"},
          {&read_chunks_, "SELECT tokens FROM chunks WHERE session = ?1 ORDER BY start"},
          {&read_text_,
           "SELECT text FROM chunks WHERE session = ?1 AND start >= ?2 ORDER BY start"},
          {&chunk_over_,
           "SELECT start, tokens FROM chunks WHERE session = ?1 AND start < ?2 "
           "ORDER BY start DESC LIMIT 1"},
          {&cut_chunks_, "DELETE FROM chunks WHERE session = ?1 AND start >= ?2"},
          {&insert_turn_,
           "INSERT INTO turns (session, turn, request_id, start, output_start, messages) "
           "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
          {&running_turn_,
           "SELECT turn, output_start FROM turns WHERE session = ?1 AND finish = 0"},
          {&finish_turn_,
           "UPDATE turns SET end = ?3, answer = ?4, finish = ?5 WHERE session = ?1 AND turn = ?2"},
          {&insert_chunk_,
           "INSERT INTO chunks (session, start, tokens, text) VALUES (?1, ?2, ?3, ?4) "
           "ON CONFLICT DO UPDATE SET tokens = excluded.tokens, text = text || excluded.text"},
          {&interrupted_,
           "SELECT s.key, s.token_count FROM turns t JOIN sessions s ON s.key = t.session "
           "WHERE t.finish = 0"},
      });
}

absl::StatusOr<SessionTables::Row> SessionTables::Find(absl::string_view session_id,
                                                       absl::Time now) {
  find_session_.Bind(1, session_id);
  ASSIGN_OR_RETURN(const bool found, find_session_.Step());
  if (!found) return NotFound(session_id);
  Row row;
  row.key = find_session_.Int(0);
  row.info = ReadInfo(find_session_, now);
  row.epoch = find_session_.Int(10);
  row.lease_request = std::string(find_session_.Text(11));
  find_session_.Reset();
  return row;
}

absl::StatusOr<SessionTables::Row> SessionTables::FindOwned(absl::string_view principal,
                                                            absl::string_view session_id,
                                                            absl::Time now) {
  ASSIGN_OR_RETURN(Row row, Find(session_id, now));
  if (row.info.principal != principal) return NotFound(session_id);
  return row;
}

absl::StatusOr<SessionInfo> SessionTables::Create(const NewSession& session, absl::Time now) {
  const absl::StatusOr<Row> taken = Find(session.session_id, now);
  if (taken.ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("session_id '", session.session_id, "' is taken; choose another"));
  }
  if (!absl::IsNotFound(taken.status())) return taken.status();
  insert_session_.Bind(1, session.session_id)
      .Bind(2, session.principal)
      .Bind(3, session.model)
      .Bind(4, session.model_digest)
      .Bind(5, absl::ToUnixMicros(now));
  RETURN_IF_ERROR(insert_session_.Run());
  ASSIGN_OR_RETURN(Row row, Find(session.session_id, now));
  return std::move(row.info);
}

absl::Status SessionTables::ReadLog(const Row& row, SessionLogData* log) {
  log->info = row.info;
  read_chunks_.Bind(1, row.key);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, read_chunks_.Step());
    if (!more) break;
    if (absl::Status status = UnpackTokens(read_chunks_.Text(0), &log->token_ids); !status.ok()) {
      read_chunks_.Reset();
      return status;
    }
  }
  if (static_cast<int64_t>(log->token_ids.size()) != row.info.token_count) {
    return absl::InternalError(absl::StrCat(
        "session store: the log of session '", row.info.session_id, "' is damaged: it has ",
        log->token_ids.size(), " tokens of ", row.info.token_count));
  }
  read_turns_.Bind(1, row.key);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, read_turns_.Step());
    if (!more) return absl::OkStatus();
    StoredTurn turn;
    turn.request_id = std::string(read_turns_.Text(0));
    turn.start = read_turns_.Int(1);
    turn.output_start = read_turns_.Int(2);
    turn.finish = static_cast<TurnFinish>(read_turns_.Int(6));
    turn.end = turn.finish == TurnFinish::kRunning ? row.info.token_count : read_turns_.Int(3);
    absl::StatusOr<std::vector<StoredMessage>> messages = MessagesFromJson(read_turns_.Text(4));
    if (!messages.ok()) {
      read_turns_.Reset();
      return messages.status();
    }
    turn.messages = *std::move(messages);
    if (row.info.kind == SessionKind::kChat && turn.finish != TurnFinish::kRunning) {
      turn.messages.push_back({.role = "assistant", .content = std::string(read_turns_.Text(5))});
    }
    log->turns.push_back(std::move(turn));
  }
}

absl::StatusOr<SessionLogData> SessionTables::Get(absl::string_view principal,
                                                  absl::string_view session_id, absl::Time now) {
  ASSIGN_OR_RETURN(const Row row, FindOwned(principal, session_id, now));
  SessionLogData log;
  RETURN_IF_ERROR(ReadLog(row, &log));
  return log;
}

absl::StatusOr<SessionPage> SessionTables::List(absl::string_view principal, int page_size,
                                                absl::string_view page_token, absl::Time now) {
  int64_t before = INT64_MAX;
  if (!page_token.empty() && (!absl::SimpleAtoi(page_token, &before) || before < 1)) {
    return absl::InvalidArgumentError("page_token is not one that ListSessions gave");
  }
  list_sessions_.Bind(1, principal).Bind(2, before).Bind(3, int64_t{page_size} + 1);
  SessionPage page;
  int64_t last_key = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, list_sessions_.Step());
    if (!more) return page;
    if (static_cast<int>(page.sessions.size()) == page_size) {
      page.next_page_token = absl::StrCat(last_key);
      list_sessions_.Reset();
      return page;
    }
    last_key = list_sessions_.Int(0);
    page.sessions.push_back(ReadInfo(list_sessions_, now));
  }
}

absl::Status SessionTables::Delete(absl::string_view principal, absl::string_view session_id,
                                   absl::Time now) {
  ASSIGN_OR_RETURN(const Row row, FindOwned(principal, session_id, now));
  if (row.info.busy) {
    return absl::AbortedError(
        absl::StrCat("session '", session_id, "' is busy with a turn; retry when it has ended"));
  }
  RETURN_IF_ERROR(delete_chunks_.Bind(1, row.key).Run());
  RETURN_IF_ERROR(delete_turns_.Bind(1, row.key).Run());
  return delete_session_.Bind(1, row.key).Run();
}

absl::StatusOr<int64_t> SessionTables::Count() {
  ASSIGN_OR_RETURN(const bool row, count_sessions_.Step());
  if (!row) return absl::InternalError("session store: sessions cannot be counted");
  const int64_t count = count_sessions_.Int(0);
  count_sessions_.Reset();
  return count;
}

absl::StatusOr<OpenTurn> SessionTables::BeginTurn(const TurnRequest& turn, absl::Time now) {
  ASSIGN_OR_RETURN(Row row, FindOwned(turn.principal, turn.session_id, now));
  if (row.info.busy && row.lease_request != turn.request_id) {
    return absl::AbortedError(absl::StrCat("session '", turn.session_id,
                                           "' is busy with another turn (request_id '",
                                           row.lease_request, "'); retry when it has ended"));
  }
  // Of a front that lost the lease in the middle of its turn.
  RETURN_IF_ERROR(FinishRunningTurn(row.key, row.info.token_count, TurnFinish::kCancelled));
  take_lease_.Bind(1, row.key)
      .Bind(2, turn.request_id)
      .Bind(3, absl::ToUnixMicros(now + turn.lease));
  RETURN_IF_ERROR(take_lease_.Run());
  OpenTurn open;
  open.epoch = row.epoch + 1;
  RETURN_IF_ERROR(ReadLog(row, &open.log));
  return open;
}

absl::Status SessionTables::RenewLease(absl::string_view session_id, int64_t epoch,
                                       absl::Time until) {
  ASSIGN_OR_RETURN(const Row row, Find(session_id, absl::InfinitePast()));
  if (row.epoch != epoch || row.lease_request.empty()) return LeaseLost(session_id);
  return renew_lease_.Bind(1, row.key).Bind(2, absl::ToUnixMicros(until)).Run();
}

absl::Status SessionTables::ReleaseLease(absl::string_view session_id, int64_t epoch) {
  ASSIGN_OR_RETURN(const Row row, Find(session_id, absl::InfinitePast()));
  if (row.epoch != epoch) return absl::OkStatus();
  return drop_lease_.Bind(1, row.key).Run();
}

absl::Status SessionTables::CutLog(int64_t key, int64_t length) {
  chunk_over_.Bind(1, key).Bind(2, length);
  ASSIGN_OR_RETURN(const bool found, chunk_over_.Step());
  std::vector<int32_t> head;
  int64_t start = 0;
  if (found) {
    start = chunk_over_.Int(0);
    const absl::Status unpacked = UnpackTokens(chunk_over_.Text(1), &head);
    chunk_over_.Reset();
    RETURN_IF_ERROR(unpacked);
  }
  RETURN_IF_ERROR(cut_chunks_.Bind(1, key).Bind(2, length).Run());
  if (start + static_cast<int64_t>(head.size()) <= length) return absl::OkStatus();
  // Its text is lost with its tail; the answer of the turn that it was part of is kept by the turn.
  head.resize(length - start);
  RETURN_IF_ERROR(cut_chunks_.Bind(1, key).Bind(2, start).Run());
  return InsertChunk(key, start, head, "");
}

absl::Status SessionTables::InsertChunk(int64_t key, int64_t start,
                                        absl::Span<const int32_t> tokens, absl::string_view text) {
  const std::string bytes = PackTokens(tokens);
  return insert_chunk_.Bind(1, key).Bind(2, start).BindBlob(3, bytes).Bind(4, text).Run();
}

absl::StatusOr<std::string> SessionTables::OutputText(int64_t key, int64_t output_start) {
  std::string text;
  read_text_.Bind(1, key).Bind(2, output_start);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, read_text_.Step());
    if (!more) return text;
    const absl::string_view piece = read_text_.Text(0);
    text.append(piece.data(), piece.size());
  }
}

absl::Status SessionTables::FinishRunningTurn(int64_t key, int64_t end, TurnFinish finish) {
  ASSIGN_OR_RETURN(const bool running, running_turn_.Bind(1, key).Step());
  if (!running) return absl::OkStatus();
  const int64_t turn = running_turn_.Int(0);
  const int64_t output_start = running_turn_.Int(1);
  running_turn_.Reset();
  ASSIGN_OR_RETURN(const std::string answer, OutputText(key, output_start));
  finish_turn_.Bind(1, key).Bind(2, turn).Bind(3, end).Bind(4, answer).Bind(
      5, static_cast<int64_t>(finish));
  return finish_turn_.Run();
}

absl::Status SessionTables::StartTurn(const TurnStart& begin, Row* row) {
  if (begin.kept < row->info.token_count) RETURN_IF_ERROR(CutLog(row->key, begin.kept));
  if (!begin.input_ids.empty()) {
    RETURN_IF_ERROR(InsertChunk(row->key, begin.kept, begin.input_ids, ""));
  }
  const std::string messages = MessagesToJson(begin.messages);
  const int64_t output_start = begin.kept + static_cast<int64_t>(begin.input_ids.size());
  insert_turn_.Bind(1, row->key)
      .Bind(2, int64_t{row->info.turn_count})
      .Bind(3, begin.request_id)
      .Bind(4, begin.kept)
      .Bind(5, output_start)
      .Bind(6, messages);
  RETURN_IF_ERROR(insert_turn_.Run());
  row->info.kind = begin.kind;
  row->info.turn_count += 1;
  row->info.token_count = output_start;
  return absl::OkStatus();
}

absl::Status SessionTables::Append(const AppendRequest& append, absl::Time now) {
  absl::StatusOr<Row> found = Find(append.session_id, now);
  if (absl::IsNotFound(found.status())) return LeaseLost(append.session_id);
  RETURN_IF_ERROR(found.status());
  Row row = *std::move(found);
  if (row.epoch != append.epoch) return LeaseLost(append.session_id);
  if (row.info.token_count != append.expected_length ||
      (append.begin.has_value() && append.begin->kept > row.info.token_count)) {
    return absl::AbortedError(absl::StrCat("session '", append.session_id, "': its log has ",
                                           row.info.token_count, " tokens, not ",
                                           append.expected_length));
  }
  if (append.begin.has_value()) RETURN_IF_ERROR(StartTurn(*append.begin, &row));
  if (!append.output_ids.empty() || !append.output_text.empty()) {
    // A text without tokens has a row that the next tokens then share.
    RETURN_IF_ERROR(
        InsertChunk(row.key, row.info.token_count, append.output_ids, append.output_text));
    row.info.token_count += static_cast<int64_t>(append.output_ids.size());
  }
  if (append.finish != TurnFinish::kRunning) {
    RETURN_IF_ERROR(FinishRunningTurn(row.key, row.info.token_count, append.finish));
    RETURN_IF_ERROR(drop_lease_.Bind(1, row.key).Run());
  }
  update_session_.Bind(1, row.key)
      .Bind(2, static_cast<int64_t>(row.info.kind))
      .Bind(3, absl::ToUnixMicros(now))
      .Bind(4, row.info.token_count)
      .Bind(5, int64_t{row.info.turn_count});
  return update_session_.Run();
}

absl::Status SessionTables::EndInterruptedTurns() {
  std::vector<std::pair<int64_t, int64_t>> interrupted;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, interrupted_.Step());
    if (!more) break;
    interrupted.emplace_back(interrupted_.Int(0), interrupted_.Int(1));
  }
  for (const auto& [key, token_count] : interrupted) {
    RETURN_IF_ERROR(FinishRunningTurn(key, token_count, TurnFinish::kCancelled));
  }
  return drop_all_leases_.Run();
}

}  // namespace tidepool::service
