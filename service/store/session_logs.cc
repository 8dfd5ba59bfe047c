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

absl::Status SessionTables::ReadLog(const Row& row, SessionLogData* log) {
  log->info = row.info;
  read_chunks_.Bind(1, row.key);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, read_chunks_.Step());
    if (!more) break;
    // A piece that is missing, or one too many.
    const bool joins = read_chunks_.Int(1) == static_cast<int64_t>(log->token_ids.size());
    const absl::Status status =
        joins ? UnpackTokens(read_chunks_.Text(0), &log->token_ids)
              : absl::InternalError("session store: pieces of the token log do not join");
    if (!status.ok()) {
      read_chunks_.Reset();
      return absl::InternalError(
          absl::StrCat("session '", row.info.session_id, "' is damaged: ", status.message()));
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
    turn.answer = std::string(read_turns_.Text(5));
    turn.body_digest = std::string(read_turns_.Text(7));
    turn.numerics_id = std::string(read_turns_.Text(8));
    if (turn.finish == TurnFinish::kRunning) {
      absl::StatusOr<std::string> so_far = OutputText(row.key, turn.output_start);
      if (!so_far.ok()) {
        read_turns_.Reset();
        return so_far.status();
      }
      turn.answer = *std::move(so_far);
    }
    log->turns.push_back(std::move(turn));
  }
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

absl::Status SessionTables::CheckBody(const Row& row, const TurnRequest& turn) {
  const auto differs = [&turn](absl::string_view known) {
    return !known.empty() && !turn.body_digest.empty() && known != turn.body_digest;
  };
  const bool leased = row.info.busy && row.lease_request == turn.request_id;
  if (leased && differs(row.lease_body)) return AnotherRequest(turn.request_id);
  body_of_turn_.Bind(1, row.key).Bind(2, turn.request_id);
  ASSIGN_OR_RETURN(const bool logged, body_of_turn_.Step());
  const bool another = logged && differs(body_of_turn_.Text(0));
  if (logged) body_of_turn_.Reset();
  return another ? AnotherRequest(turn.request_id) : absl::OkStatus();
}

absl::StatusOr<bool> SessionTables::ReopenTurn(const Row& row, absl::string_view request_id) {
  const int64_t number = int64_t{row.info.turn_count} - 1;
  ASSIGN_OR_RETURN(const bool found, last_turn_.Bind(1, row.key).Bind(2, number).Step());
  if (!found) return false;
  const bool same = last_turn_.Text(0) == request_id;
  const int64_t output_start = last_turn_.Int(1);
  const int64_t end = last_turn_.Int(2);
  const std::string answer(last_turn_.Text(3));
  const auto finish = static_cast<TurnFinish>(last_turn_.Int(4));
  last_turn_.Reset();
  if (!same) return false;
  if (finish == TurnFinish::kRunning) return true;
  if (finish != TurnFinish::kCancelled || end != row.info.token_count) return false;
  // A running turn's answer is the text of its pieces, which a copy of a log does not have.
  RETURN_IF_ERROR(clear_text_.Bind(1, row.key).Bind(2, output_start).Run());
  RETURN_IF_ERROR(InsertChunk(row.key, row.info.token_count, {}, answer));
  RETURN_IF_ERROR(reopen_turn_.Bind(1, row.key).Bind(2, number).Run());
  return true;
}

absl::Status SessionTables::InsertTurn(int64_t key, int64_t number, const StoredTurn& turn) {
  const std::string messages = MessagesToJson(turn.messages);
  insert_turn_.Bind(1, key)
      .Bind(2, number)
      .Bind(3, turn.request_id)
      .Bind(4, turn.start)
      .Bind(5, turn.output_start)
      .Bind(6, messages)
      .Bind(7, turn.end)
      .Bind(8, turn.answer)
      .Bind(9, static_cast<int64_t>(turn.finish))
      .Bind(10, turn.body_digest)
      .Bind(11, turn.numerics_id);
  return insert_turn_.Run();
}

absl::Status SessionTables::StartTurn(const TurnStart& begin, Row* row) {
  if (begin.kept < row->info.token_count) RETURN_IF_ERROR(CutLog(row->key, begin.kept));
  if (!begin.input_ids.empty()) {
    RETURN_IF_ERROR(InsertChunk(row->key, begin.kept, begin.input_ids, ""));
  }
  const int64_t output_start = begin.kept + static_cast<int64_t>(begin.input_ids.size());
  RETURN_IF_ERROR(InsertTurn(row->key, row->info.turn_count,
                             {.request_id = begin.request_id,
                              .start = begin.kept,
                              .output_start = output_start,
                              .messages = begin.messages,
                              .body_digest = begin.body_digest}));
  row->info.kind = begin.kind;
  row->info.turn_count += 1;
  row->info.token_count = output_start;
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
    // A text without tokens has a row that the next tokens then share.
    RETURN_IF_ERROR(
        InsertChunk(row.key, row.info.token_count, append.output_ids, append.output_text));
    row.info.token_count += static_cast<int64_t>(append.output_ids.size());
  }
  if (!append.numerics_id.empty()) {
    RETURN_IF_ERROR(set_numerics_.Bind(1, row.key).Bind(2, append.numerics_id).Run());
  }
  if (append.finish != TurnFinish::kRunning) {
    RETURN_IF_ERROR(FinishRunningTurn(row.key, row.info.token_count, append.finish));
    RETURN_IF_ERROR(drop_lease_.Bind(1, row.key).Run());
  }
  update_session_.Bind(1, row.key)
      .Bind(2, static_cast<int64_t>(row.info.kind))
      .Bind(3, absl::ToUnixMicros(now.wall))
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
