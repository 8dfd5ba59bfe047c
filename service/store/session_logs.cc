// SessionTables' part over turns and tokens.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/message_json.h"
#include "service/store/session_tables.h"
#include "service/store/store_errors.h"
#include "service/store/token_bytes.h"

namespace tidepool::service {
namespace {

// Of a log that is written at once: a cut rewrites no more than this.
constexpr int64_t kChunkTokens = 1024;

int64_t TokensIn(absl::string_view bytes) { return static_cast<int64_t>(bytes.size() / 4); }

// Resets a statement that is left before its end.
class Rewind {
 public:
  explicit Rewind(SqliteStatement* statement) : statement_(statement) {}
  ~Rewind() { statement_->Reset(); }
  Rewind(const Rewind&) = delete;
  Rewind& operator=(const Rewind&) = delete;

 private:
  SqliteStatement* statement_;
};

}  // namespace

Hash128 SessionTables::LogStart(const Row& row) {
  return RowHasher("chunks").Add(row.info.session_id).Finish();
}

Hash128 SessionTables::TurnsStart(const Row& row) {
  return RowHasher("turns").Add(row.info.session_id).Finish();
}

Hash128 SessionTables::HashOf(const Hash128& before, const Chunk& chunk) {
  return RowHasher("chunk").Add(before).Add(chunk.start).Add(chunk.tokens).Add(chunk.text).Finish();
}

Hash128 SessionTables::HashOf(const Hash128& before, int64_t number, const TurnRow& row) {
  const StoredTurn& turn = row.turn;
  return RowHasher("turn")
      .Add(before)
      .Add(number)
      .Add(turn.request_id)
      .Add(turn.start)
      .Add(turn.output_start)
      .Add(turn.end)
      .Add(row.messages)
      .Add(turn.answer)
      .Add(static_cast<int64_t>(turn.finish))
      .Add(turn.body_digest)
      .Add(turn.numerics_id)
      .Finish();
}

namespace {

// Of a statement over chunks and one over turns, whose columns are these.
template <typename Chunk>
Chunk ReadChunk(const SqliteStatement& row) {
  return {.start = row.Int(0),
          .tokens = std::string(row.Text(1)),
          .text = std::string(row.Text(2)),
          .hash = row.HasClasses("ibtb") ? Hash128::FromBytes(row.Text(3)) : Hash128()};
}

template <typename TurnRow>
TurnRow ReadTurn(const SqliteStatement& row) {
  TurnRow read;
  read.turn = {.request_id = std::string(row.Text(0)),
               .start = row.Int(1),
               .output_start = row.Int(2),
               .end = row.Int(3),
               .messages = {},
               .answer = std::string(row.Text(5)),
               .finish = static_cast<TurnFinish>(row.Int(6)),
               .body_digest = std::string(row.Text(7)),
               .numerics_id = std::string(row.Text(8))};
  read.messages = std::string(row.Text(4));
  if (row.HasClasses("tiiittittbi")) read.hash = Hash128::FromBytes(row.Text(9));
  return read;
}

}  // namespace

absl::Status SessionTables::ReadTokens(const Row& row, std::vector<int32_t>* tokens) {
  const absl::string_view id = row.info.session_id;
  Hash128 hash = LogStart(row);
  const Rewind rewind(&read_chunks_);
  read_chunks_.Bind(1, row.key);
  // Not past its last piece: another session's rows can be on a page that cannot be read.
  while (hash != row.log_hash) {
    ASSIGN_OR_RETURN(const bool more, read_chunks_.Step());
    if (!more) break;
    const auto chunk = ReadChunk<Chunk>(read_chunks_);
    hash = HashOf(hash, chunk);
    if (chunk.hash != hash) {
      return SessionDamaged(
          id, absl::StrCat("its log does not match its hash after token ", tokens->size()));
    }
    const bool joins = chunk.start == static_cast<int64_t>(tokens->size());
    if (!joins || !UnpackTokens(chunk.tokens, tokens).ok()) {
      return SessionDamaged(
          id,
          absl::StrCat("the pieces of its log have a gap or overlap at token ", tokens->size()));
    }
  }
  const int64_t length = static_cast<int64_t>(tokens->size());
  if (length == row.info.token_count && hash == row.log_hash) return absl::OkStatus();
  return SessionDamaged(
      id, absl::StrCat("its log has ", length, " tokens, expected ", row.info.token_count));
}

absl::Status SessionTables::ReadTurns(const Row& row, std::vector<StoredTurn>* turns) {
  const absl::string_view id = row.info.session_id;
  Hash128 hash = TurnsStart(row);
  const Rewind rewind(&read_turns_);
  read_turns_.Bind(1, row.key).Bind(2, int64_t{row.info.turn_count});
  while (true) {
    ASSIGN_OR_RETURN(const bool more, read_turns_.Step());
    if (!more) break;
    auto read = ReadTurn<TurnRow>(read_turns_);
    hash = HashOf(hash, static_cast<int64_t>(turns->size()), read);
    absl::StatusOr<std::vector<StoredMessage>> messages = MessagesFromJson(read.messages);
    if (read.hash != hash || !messages.ok()) {
      return SessionDamaged(id, absl::StrCat("turn ", turns->size(), " does not match its hash"));
    }
    read.turn.messages = *std::move(messages);
    if (read.turn.finish == TurnFinish::kRunning) {
      read.turn.end = row.info.token_count;
      ASSIGN_OR_RETURN(read.turn.answer, OutputText(row.key, read.turn.output_start));
    }
    turns->push_back(std::move(read.turn));
  }
  const int64_t count = static_cast<int64_t>(turns->size());
  if (count == row.info.turn_count && hash == row.turns_hash) return absl::OkStatus();
  return SessionDamaged(id,
                        absl::StrCat("it has ", count, " turns, expected ", row.info.turn_count));
}

absl::Status SessionTables::ReadLog(const Row& row, SessionLogData* log) {
  log->info = row.info;
  RETURN_IF_ERROR(ReadTokens(row, &log->token_ids));
  return ReadTurns(row, &log->turns);
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

absl::StatusOr<SessionTables::Chunk> SessionTables::LastChunk(const Row& row, int64_t before) {
  ASSIGN_OR_RETURN(const bool found, chunk_before_.Bind(1, row.key).Bind(2, before).Step());
  if (!found) return Chunk{.hash = LogStart(row)};
  const Rewind rewind(&chunk_before_);
  return ReadChunk<Chunk>(chunk_before_);
}

absl::Status SessionTables::WriteChunk(const Row& row, const Chunk& chunk) {
  const std::string hash = chunk.hash.Bytes();
  return write_chunk_.Bind(1, row.key)
      .Bind(2, chunk.start)
      .BindBlob(3, chunk.tokens)
      .Bind(4, chunk.text)
      .BindBlob(5, hash)
      .Run();
}

absl::Status SessionTables::AddChunk(Row* row, absl::Span<const int32_t> tokens,
                                     absl::string_view text) {
  Chunk chunk = {
      .start = row->info.token_count, .tokens = PackTokens(tokens), .text = std::string(text)};
  Hash128 before = row->log_hash;
  ASSIGN_OR_RETURN(const bool shared, chunk_at_.Bind(1, row->key).Bind(2, chunk.start).Step());
  if (shared) {
    // There is a text without tokens; add the tokens to it.
    const auto there = ReadChunk<Chunk>(chunk_at_);
    chunk_at_.Reset();
    ASSIGN_OR_RETURN(const Chunk last, LastChunk(*row, chunk.start));
    const bool whole = HashOf(last.hash, there) == row->log_hash && there.hash == row->log_hash;
    if (!whole || !there.tokens.empty()) {
      return SessionDamaged(row->info.session_id, "the end of its log does not match its hash");
    }
    before = last.hash;
    chunk.text = absl::StrCat(there.text, chunk.text);
  }
  chunk.hash = HashOf(before, chunk);
  RETURN_IF_ERROR(WriteChunk(*row, chunk));
  row->log_hash = chunk.hash;
  row->info.token_count += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status SessionTables::CutLog(Row* row, int64_t length) {
  ASSIGN_OR_RETURN(Chunk last, LastChunk(*row, length));
  RETURN_IF_ERROR(cut_chunks_.Bind(1, row->key).Bind(2, length).Run());
  row->info.token_count = length;
  row->log_hash = last.hash;
  if (last.start + TokensIn(last.tokens) <= length) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Chunk before, LastChunk(*row, last.start));
  if (HashOf(before.hash, last) != last.hash) {
    return SessionDamaged(row->info.session_id, "its log does not match its hash");
  }
  // Its text is lost with its tail; the answer of the turn that it was part of is kept by the turn.
  last.tokens.resize((length - last.start) * 4);
  last.text.clear();
  last.hash = HashOf(before.hash, last);
  row->log_hash = last.hash;
  return WriteChunk(*row, last);
}

absl::Status SessionTables::Rechain(Row* row, int64_t from) {
  ASSIGN_OR_RETURN(const Chunk before, LastChunk(*row, from));
  Hash128 hash = before.hash;
  std::vector<std::pair<int64_t, Hash128>> hashes;
  chunks_from_.Bind(1, row->key).Bind(2, from);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, chunks_from_.Step());
    if (!more) break;
    const auto chunk = ReadChunk<Chunk>(chunks_from_);
    hash = HashOf(hash, chunk);
    hashes.emplace_back(chunk.start, hash);
  }
  for (const auto& [start, chunk_hash] : hashes) {
    const std::string bytes = chunk_hash.Bytes();
    RETURN_IF_ERROR(hash_chunk_.Bind(1, row->key).Bind(2, start).BindBlob(3, bytes).Run());
  }
  row->log_hash = hash;
  return absl::OkStatus();
}

absl::Status SessionTables::AddTurn(Row* row, const StoredTurn& turn) {
  TurnRow added = {.turn = turn, .messages = MessagesToJson(turn.messages), .hash = {}};
  const int64_t number = row->info.turn_count;
  added.hash = HashOf(row->turns_hash, number, added);
  const std::string hash = added.hash.Bytes();
  insert_turn_.Bind(1, row->key)
      .Bind(2, number)
      .Bind(3, turn.request_id)
      .Bind(4, turn.start)
      .Bind(5, turn.output_start)
      .Bind(6, added.messages)
      .Bind(7, turn.end)
      .Bind(8, turn.answer)
      .Bind(9, static_cast<int64_t>(turn.finish))
      .Bind(10, turn.body_digest)
      .Bind(11, turn.numerics_id)
      .BindBlob(12, hash);
  RETURN_IF_ERROR(insert_turn_.Run());
  row->turns_hash = added.hash;
  ++row->info.turn_count;
  return absl::OkStatus();
}

absl::Status SessionTables::AddLog(Row* row, const SessionLogData& session) {
  const auto tokens = absl::MakeConstSpan(session.token_ids);
  for (size_t start = 0; start < tokens.size(); start += kChunkTokens) {
    RETURN_IF_ERROR(AddChunk(row, tokens.subspan(start, kChunkTokens), ""));
  }
  for (StoredTurn turn : session.turns) {
    if (turn.finish == TurnFinish::kRunning) turn.finish = TurnFinish::kCancelled;
    RETURN_IF_ERROR(AddTurn(row, turn));
  }
  row->info.kind = session.info.kind;
  row->info.update_time = session.info.update_time;
  return absl::OkStatus();
}

SessionTables::TurnRow SessionTables::TurnAt() {
  const Rewind rewind(&turn_at_);
  return ReadTurn<TurnRow>(turn_at_);
}

absl::StatusOr<std::optional<SessionTables::TurnRow>> SessionTables::LastTurn(const Row& row,
                                                                              Hash128* before) {
  const int64_t number = int64_t{row.info.turn_count} - 1;
  if (number < 0) return std::nullopt;
  *before = TurnsStart(row);
  if (number > 0) {
    ASSIGN_OR_RETURN(const bool there, turn_at_.Bind(1, row.key).Bind(2, number - 1).Step());
    if (there) *before = TurnAt().hash;
  }
  ASSIGN_OR_RETURN(const bool found, turn_at_.Bind(1, row.key).Bind(2, number).Step());
  if (!found) return SessionDamaged(row.info.session_id, "its last turn is missing");
  TurnRow turn = TurnAt();
  if (HashOf(*before, number, turn) != row.turns_hash || turn.hash != row.turns_hash) {
    return SessionDamaged(row.info.session_id, "its last turn does not match its hash");
  }
  return turn;
}

absl::Status SessionTables::ChangeTurn(Row* row, const Hash128& before, TurnRow* turn) {
  const int64_t number = int64_t{row->info.turn_count} - 1;
  turn->hash = HashOf(before, number, *turn);
  row->turns_hash = turn->hash;
  const std::string hash = turn->hash.Bytes();
  return change_turn_.Bind(1, row->key)
      .Bind(2, number)
      .Bind(3, turn->turn.end)
      .Bind(4, turn->turn.answer)
      .Bind(5, static_cast<int64_t>(turn->turn.finish))
      .Bind(6, turn->turn.numerics_id)
      .BindBlob(7, hash)
      .Run();
}

absl::Status SessionTables::UpdateRunningTurn(Row* row, TurnFinish finish,
                                              absl::string_view numerics_id) {
  Hash128 before;
  ASSIGN_OR_RETURN(std::optional<TurnRow> last, LastTurn(*row, &before));
  if (!last.has_value() || last->turn.finish != TurnFinish::kRunning) return absl::OkStatus();
  if (!numerics_id.empty()) last->turn.numerics_id = std::string(numerics_id);
  if (finish != TurnFinish::kRunning) {
    last->turn.finish = finish;
    last->turn.end = row->info.token_count;
    ASSIGN_OR_RETURN(last->turn.answer, OutputText(row->key, last->turn.output_start));
  }
  return ChangeTurn(row, before, &*last);
}

absl::Status SessionTables::CheckBody(const Row& row, const SessionLogData& log,
                                      const TurnRequest& turn) {
  const auto differs = [&turn](absl::string_view known) {
    return !known.empty() && !turn.body_digest.empty() && known != turn.body_digest;
  };
  const bool leased = row.info.busy && row.lease_request == turn.request_id;
  if (leased && differs(row.lease_body)) return AnotherRequest(turn.request_id);
  const auto logged =
      std::find_if(log.turns.begin(), log.turns.end(),
                   [&turn](const StoredTurn& one) { return one.request_id == turn.request_id; });
  const bool another = logged != log.turns.end() && differs(logged->body_digest);
  return another ? AnotherRequest(turn.request_id) : absl::OkStatus();
}

absl::StatusOr<bool> SessionTables::ReopenTurn(Row* row, const SessionLogData& log,
                                               absl::string_view request_id) {
  if (log.turns.empty() || log.turns.back().request_id != request_id) return false;
  if (log.turns.back().finish == TurnFinish::kRunning) return true;
  Hash128 before;
  ASSIGN_OR_RETURN(std::optional<TurnRow> last, LastTurn(*row, &before));
  if (!last.has_value()) return false;
  StoredTurn& turn = last->turn;
  if (turn.finish != TurnFinish::kCancelled || turn.end != row->info.token_count) return false;
  // A running turn's answer is the text of its pieces, which a copy of a log does not have.
  RETURN_IF_ERROR(clear_text_.Bind(1, row->key).Bind(2, turn.output_start).Run());
  RETURN_IF_ERROR(Rechain(row, turn.output_start));
  RETURN_IF_ERROR(AddChunk(row, {}, turn.answer));
  turn.end = 0;
  turn.answer.clear();
  turn.finish = TurnFinish::kRunning;
  RETURN_IF_ERROR(ChangeTurn(row, before, &*last));
  return true;
}

absl::Status SessionTables::StartTurn(const TurnStart& begin, Row* row) {
  if (begin.kept < row->info.token_count) RETURN_IF_ERROR(CutLog(row, begin.kept));
  if (!begin.input_ids.empty()) RETURN_IF_ERROR(AddChunk(row, begin.input_ids, ""));
  RETURN_IF_ERROR(AddTurn(row, {.request_id = begin.request_id,
                                .start = begin.kept,
                                .output_start = row->info.token_count,
                                .messages = begin.messages,
                                .body_digest = begin.body_digest}));
  row->info.kind = begin.kind;
  return absl::OkStatus();
}

absl::Status SessionTables::Append(const AppendRequest& append, const StoreTime& now) {
  absl::StatusOr<Row> found = Find(append.session_id, now);
  if (absl::IsNotFound(found.status())) return LeaseLost(append.session_id);
  RETURN_IF_ERROR(found.status());
  Row row = *std::move(found);
  if (row.info.epoch != append.epoch) return LeaseLost(append.session_id);
  if (row.info.token_count != append.expected_length ||
      (append.begin.has_value() && append.begin->kept > row.info.token_count)) {
    return LengthDiffers(append.session_id, row.info.token_count, append.expected_length);
  }
  if (append.begin.has_value()) RETURN_IF_ERROR(StartTurn(*append.begin, &row));
  if (!append.output_ids.empty() || !append.output_text.empty()) {
    RETURN_IF_ERROR(AddChunk(&row, append.output_ids, append.output_text));
  }
  if (!append.numerics_id.empty() || append.finish != TurnFinish::kRunning) {
    RETURN_IF_ERROR(UpdateRunningTurn(&row, append.finish, append.numerics_id));
  }
  if (append.finish != TurnFinish::kRunning) {
    row.lease_request.clear();
    row.lease_until_us = 0;
  }
  row.info.update_time = now.wall;
  return Save(&row);
}

}  // namespace tidepool::service
