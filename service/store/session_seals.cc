#include "service/store/session_seals.h"

#include "absl/time/time.h"
#include "service/store/store_errors.h"

namespace tidepool::service {

Hash128 SealOf(const SessionRow& row) {
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

absl::Status CheckSeal(const SessionRow& row) {
  if (!row.classes_fit) {
    return SessionDamaged(row.info.session_id, "a column of its row has the wrong type");
  }
  if (row.seal == SealOf(row)) return absl::OkStatus();
  return SessionDamaged(row.info.session_id, "its row does not match its seal");
}

Hash128 ChunksStart(absl::string_view session_id) {
  return RowHasher("chunks").Add(session_id).Finish();
}

Hash128 TurnsStart(absl::string_view session_id) {
  return RowHasher("turns").Add(session_id).Finish();
}

Hash128 HashOf(const Hash128& before, const ChunkRow& chunk) {
  return RowHasher("chunk").Add(before).Add(chunk.start).Add(chunk.tokens).Add(chunk.text).Finish();
}

Hash128 HashOf(const Hash128& before, int64_t number, const TurnRow& row) {
  const StoredTurn& turn = row.turn;
  return RowHasher("turn")
      .Add(before)
      .Add(number)
      .Add(turn.request_id)
      .Add(turn.start)
      .Add(turn.output_start)
      .Add(turn.end)
      .Add(row.messages)
      .Add(turn.response)
      .Add(static_cast<int64_t>(turn.finish))
      .Add(turn.body_digest)
      .Add(turn.numerics_id)
      .Finish();
}

}  // namespace tidepool::service
