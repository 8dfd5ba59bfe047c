#include "service/store/sealed_logs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/message_json.h"
#include "service/store/session_seals.h"
#include "service/store/store_errors.h"
#include "service/store/token_bytes.h"

namespace tidepool::service {
namespace {

// Maximum number of tokens in one chunk, if a longer log is written at once. If the log is
// truncated, at most one chunk must be written again.
constexpr int64_t kChunkTokens = 1024;

int64_t TokensIn(absl::string_view bytes) { return static_cast<int64_t>(bytes.size() / 4); }

}  // namespace

absl::StatusOr<std::unique_ptr<SealedLogs>> SealedLogs::Open(const SqliteDb& db) {
  ASSIGN_OR_RETURN(ChunkTable chunks, ChunkTable::Open(db));
  ASSIGN_OR_RETURN(TurnTable turns, TurnTable::Open(db));
  return std::unique_ptr<SealedLogs>(new SealedLogs(std::move(chunks), std::move(turns)));
}

SealedLogs::SealedLogs(ChunkTable chunks, TurnTable turns)
    : chunks_(std::move(chunks)), turns_(std::move(turns)) {}

absl::Status SealedLogs::Read(const SessionRow& row, SessionLogData* log) {
  log->info = row.info;
  RETURN_IF_ERROR(ReadTokens(row, &log->token_ids));
  return ReadTurns(row, &log->turns);
}

absl::Status SealedLogs::ReadTokens(const SessionRow& row, std::vector<int32_t>* tokens) {
  const absl::string_view id = row.info.session_id;
  Hash128 hash = ChunksStart(id);
  RowCursor<ChunkRow> chunks = chunks_.All(row.key);
  // Stop after the last chunk of this session. The next row belongs to another session, and may be
  // on a page that cannot be read.
  while (hash != row.log_hash) {
    ASSIGN_OR_RETURN(const std::optional<ChunkRow> chunk, chunks.Next());
    if (!chunk.has_value()) break;
    hash = HashOf(hash, *chunk);
    if (chunk->hash != hash) {
      return SessionDamaged(
          id, absl::StrCat("its log does not match its hash after token ", tokens->size()));
    }
    const bool joins = chunk->start == static_cast<int64_t>(tokens->size());
    if (!joins || !UnpackTokens(chunk->tokens, tokens).ok()) {
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

absl::Status SealedLogs::ReadTurns(const SessionRow& row, std::vector<StoredTurn>* turns) {
  const absl::string_view id = row.info.session_id;
  Hash128 hash = TurnsStart(id);
  RowCursor<TurnRow> rows = turns_.First(row.key, int64_t{row.info.turn_count});
  while (true) {
    ASSIGN_OR_RETURN(std::optional<TurnRow> read, rows.Next());
    if (!read.has_value()) break;
    hash = HashOf(hash, static_cast<int64_t>(turns->size()), *read);
    absl::StatusOr<std::vector<StoredMessage>> messages = MessagesFromJson(read->messages);
    if (read->hash != hash || !messages.ok()) {
      return SessionDamaged(id, absl::StrCat("turn ", turns->size(), " does not match its hash"));
    }
    StoredTurn& turn = read->turn;
    turn.messages = *std::move(messages);
    if (turn.finish == TurnFinish::kRunning) {
      turn.end = row.info.token_count;
      ASSIGN_OR_RETURN(turn.response, chunks_.TextFrom(row.key, turn.output_start));
    }
    turns->push_back(std::move(turn));
  }
  const int64_t count = static_cast<int64_t>(turns->size());
  if (count == row.info.turn_count && hash == row.turns_hash) return absl::OkStatus();
  return SessionDamaged(id,
                        absl::StrCat("it has ", count, " turns, expected ", row.info.turn_count));
}

absl::StatusOr<ChunkRow> SealedLogs::ChunkBefore(const SessionRow& row, int64_t start) {
  ASSIGN_OR_RETURN(std::optional<ChunkRow> chunk, chunks_.LastBefore(row.key, start));
  if (!chunk.has_value()) return ChunkRow{.hash = ChunksStart(row.info.session_id)};
  return *std::move(chunk);
}

absl::Status SealedLogs::AddOutput(SessionRow* row, absl::Span<const int32_t> tokens,
                                   absl::string_view text) {
  ChunkRow chunk = {
      .start = row->info.token_count, .tokens = PackTokens(tokens), .text = std::string(text)};
  Hash128 before = row->log_hash;
  ASSIGN_OR_RETURN(const std::optional<ChunkRow> there, chunks_.At(row->key, chunk.start));
  if (there.has_value()) {
    // There is a chunk that has text but no tokens. Add the tokens to it.
    ASSIGN_OR_RETURN(const ChunkRow last, ChunkBefore(*row, chunk.start));
    const bool whole = HashOf(last.hash, *there) == row->log_hash && there->hash == row->log_hash;
    if (!whole || !there->tokens.empty()) {
      return SessionDamaged(row->info.session_id, "the end of its log does not match its hash");
    }
    before = last.hash;
    chunk.text = absl::StrCat(there->text, chunk.text);
  }
  chunk.hash = HashOf(before, chunk);
  RETURN_IF_ERROR(chunks_.Write(row->key, chunk));
  row->log_hash = chunk.hash;
  row->info.token_count += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status SealedLogs::Cut(SessionRow* row, int64_t length) {
  ASSIGN_OR_RETURN(ChunkRow last, ChunkBefore(*row, length));
  RETURN_IF_ERROR(chunks_.DeleteFrom(row->key, length));
  row->info.token_count = length;
  row->log_hash = last.hash;
  if (last.start + TokensIn(last.tokens) <= length) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ChunkRow before, ChunkBefore(*row, last.start));
  if (HashOf(before.hash, last) != last.hash) {
    return SessionDamaged(row->info.session_id, "its log does not match its hash");
  }
  // The text of the chunk must be deleted, because it includes the text of the removed tokens. The
  // response of its turn is stored in the turn's row.
  last.tokens.resize((length - last.start) * 4);
  last.text.clear();
  last.hash = HashOf(before.hash, last);
  row->log_hash = last.hash;
  return chunks_.Write(row->key, last);
}

absl::Status SealedLogs::Rechain(SessionRow* row, int64_t start) {
  ASSIGN_OR_RETURN(const ChunkRow before, ChunkBefore(*row, start));
  Hash128 hash = before.hash;
  std::vector<std::pair<int64_t, Hash128>> hashes;
  {
    RowCursor<ChunkRow> chunks = chunks_.From(row->key, start);
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<ChunkRow> chunk, chunks.Next());
      if (!chunk.has_value()) break;
      hash = HashOf(hash, *chunk);
      hashes.emplace_back(chunk->start, hash);
    }
  }
  for (const auto& [chunk_start, chunk_hash] : hashes) {
    RETURN_IF_ERROR(chunks_.WriteHash(row->key, chunk_start, chunk_hash));
  }
  row->log_hash = hash;
  return absl::OkStatus();
}

absl::Status SealedLogs::AddTurn(SessionRow* row, const StoredTurn& turn) {
  TurnRow added = {.turn = turn, .messages = MessagesToJson(turn.messages), .hash = {}};
  const int64_t number = row->info.turn_count;
  added.hash = HashOf(row->turns_hash, number, added);
  RETURN_IF_ERROR(turns_.Insert(row->key, number, added));
  row->turns_hash = added.hash;
  ++row->info.turn_count;
  return absl::OkStatus();
}

absl::Status SealedLogs::AddLog(SessionRow* row, const SessionLogData& session) {
  const auto tokens = absl::MakeConstSpan(session.token_ids);
  for (size_t start = 0; start < tokens.size(); start += kChunkTokens) {
    RETURN_IF_ERROR(AddOutput(row, tokens.subspan(start, kChunkTokens), ""));
  }
  for (StoredTurn turn : session.turns) {
    if (turn.finish == TurnFinish::kRunning) turn.finish = TurnFinish::kCancelled;
    RETURN_IF_ERROR(AddTurn(row, turn));
  }
  row->info.kind = session.info.kind;
  row->info.update_time = session.info.update_time;
  return absl::OkStatus();
}

absl::Status SealedLogs::Clear(SessionRow* row) {
  RETURN_IF_ERROR(Delete(row->key));
  row->info.token_count = 0;
  row->info.turn_count = 0;
  row->log_hash = ChunksStart(row->info.session_id);
  row->turns_hash = TurnsStart(row->info.session_id);
  return absl::OkStatus();
}

absl::Status SealedLogs::Delete(int64_t key) {
  RETURN_IF_ERROR(chunks_.DeleteAll(key));
  return turns_.DeleteAll(key);
}

absl::Status SealedLogs::StartTurn(SessionRow* row, const TurnStart& begin) {
  if (begin.kept < row->info.token_count) RETURN_IF_ERROR(Cut(row, begin.kept));
  if (!begin.input_ids.empty()) RETURN_IF_ERROR(AddOutput(row, begin.input_ids, ""));
  RETURN_IF_ERROR(AddTurn(row, {.request_id = begin.request_id,
                                .start = begin.kept,
                                .output_start = row->info.token_count,
                                .messages = begin.messages,
                                .body_digest = begin.body_digest}));
  row->info.kind = begin.kind;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TurnRow>> SealedLogs::LastTurn(const SessionRow& row,
                                                            Hash128* before) {
  const int64_t number = int64_t{row.info.turn_count} - 1;
  if (number < 0) return std::nullopt;
  *before = TurnsStart(row.info.session_id);
  if (number > 0) {
    ASSIGN_OR_RETURN(const std::optional<TurnRow> previous, turns_.At(row.key, number - 1));
    if (previous.has_value()) *before = previous->hash;
  }
  ASSIGN_OR_RETURN(std::optional<TurnRow> turn, turns_.At(row.key, number));
  if (!turn.has_value()) return SessionDamaged(row.info.session_id, "its last turn is missing");
  if (HashOf(*before, number, *turn) != row.turns_hash || turn->hash != row.turns_hash) {
    return SessionDamaged(row.info.session_id, "its last turn does not match its hash");
  }
  return turn;
}

absl::Status SealedLogs::ChangeLastTurn(SessionRow* row, const Hash128& before, TurnRow* turn) {
  const int64_t number = int64_t{row->info.turn_count} - 1;
  turn->hash = HashOf(before, number, *turn);
  row->turns_hash = turn->hash;
  return turns_.Update(row->key, number, *turn);
}

absl::Status SealedLogs::UpdateRunningTurn(SessionRow* row, TurnFinish finish,
                                           absl::string_view numerics_id) {
  Hash128 before;
  ASSIGN_OR_RETURN(std::optional<TurnRow> last, LastTurn(*row, &before));
  if (!last.has_value() || last->turn.finish != TurnFinish::kRunning) return absl::OkStatus();
  if (!numerics_id.empty()) last->turn.numerics_id = std::string(numerics_id);
  if (finish != TurnFinish::kRunning) {
    last->turn.finish = finish;
    last->turn.end = row->info.token_count;
    ASSIGN_OR_RETURN(last->turn.response, chunks_.TextFrom(row->key, last->turn.output_start));
  }
  return ChangeLastTurn(row, before, &*last);
}

absl::StatusOr<bool> SealedLogs::ReopenTurn(SessionRow* row, const SessionLogData& log,
                                            absl::string_view request_id) {
  if (log.turns.empty() || log.turns.back().request_id != request_id) return false;
  if (log.turns.back().finish == TurnFinish::kRunning) return true;
  Hash128 before;
  ASSIGN_OR_RETURN(std::optional<TurnRow> last, LastTurn(*row, &before));
  if (!last.has_value()) return false;
  StoredTurn& turn = last->turn;
  if (turn.finish != TurnFinish::kCancelled || turn.end != row->info.token_count) return false;
  // While a turn runs, its response is the text of its chunks. A copied log has no such text, so
  // add it.
  RETURN_IF_ERROR(chunks_.ClearTextFrom(row->key, turn.output_start));
  RETURN_IF_ERROR(Rechain(row, turn.output_start));
  RETURN_IF_ERROR(AddOutput(row, {}, turn.response));
  turn.end = 0;
  turn.response.clear();
  turn.finish = TurnFinish::kRunning;
  RETURN_IF_ERROR(ChangeLastTurn(row, before, &*last));
  return true;
}

absl::Status SealedLogs::Seal(SessionRow* row) {
  row->log_hash = ChunksStart(row->info.session_id);
  RETURN_IF_ERROR(Rechain(row, 0));
  SessionLogData log;
  RETURN_IF_ERROR(ReadTokens(*row, &log.token_ids));
  Hash128 hash = TurnsStart(row->info.session_id);
  for (int64_t number = 0; number < row->info.turn_count; ++number) {
    ASSIGN_OR_RETURN(const std::optional<TurnRow> turn, turns_.At(row->key, number));
    if (!turn.has_value()) return SessionDamaged(row->info.session_id, "a turn is missing");
    hash = HashOf(hash, number, *turn);
    RETURN_IF_ERROR(turns_.WriteHash(row->key, number, hash));
  }
  row->turns_hash = hash;
  // Check the log, because the caller must not save a log whose parts contradict each other.
  return ReadTurns(*row, &log.turns);
}

}  // namespace tidepool::service
