#include "service/store/redis_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/store/lease.h"
#include "service/store/message_json.h"
#include "service/store/sha1_chain.h"
#include "service/store/store_errors.h"
#include "service/store/token_bytes.h"

namespace tidepool::service {
namespace {

void Put(std::string name, std::string value, std::vector<std::string>* fields) {
  fields->push_back(std::move(name));
  fields->push_back(std::move(value));
}

// Returns `value` with a second line that contains the request_id of its turn (see
// redis_scripts.h).
std::string Tie(absl::string_view value, absl::string_view request_id) {
  return absl::StrCat(value, "\n", request_id);
}

// Returns the value that Tie has stored in `field`. Empty if the field belongs to another turn or
// was never written.
std::string Untie(absl::string_view field, absl::string_view request_id) {
  const bool tied = absl::ConsumeSuffix(&field, request_id) && absl::ConsumeSuffix(&field, "\n");
  return tied ? std::string(field) : "";
}

void EncodeTurn(size_t number, const StoredTurn& turn, std::vector<std::string>* fields) {
  const TurnFinish finish =
      turn.finish == TurnFinish::kRunning ? TurnFinish::kCancelled : turn.finish;
  const std::string t = absl::StrCat("t", number, ":");
  Put(t + "r", turn.request_id, fields);
  Put(t + "s", absl::StrCat(turn.start), fields);
  Put(t + "o", absl::StrCat(turn.output_start), fields);
  Put(t + "e", absl::StrCat(turn.end), fields);
  Put(t + "m", MessagesToJson(turn.messages), fields);
  Put(t + "a", turn.response, fields);
  Put(t + "f", absl::StrCat(static_cast<int>(finish)), fields);
  Put(t + "b", Tie(turn.body_digest, turn.request_id), fields);
  Put(t + "n", Tie(turn.numerics_id, turn.request_id), fields);
}

absl::StatusOr<StoredTurn> DecodeTurn(RedisValue fields, const SessionInfo& info,
                                      absl::string_view running_text) {
  StoredTurn turn;
  turn.request_id = std::string(fields[0].text());
  turn.start = fields[1].integer();
  turn.output_start = fields[2].integer();
  turn.end = fields[3].integer();
  ASSIGN_OR_RETURN(turn.messages, MessagesFromJson(fields[4].text()));
  turn.response = std::string(fields[5].text());
  turn.finish = static_cast<TurnFinish>(fields[6].integer());
  turn.body_digest = Untie(fields[7].text(), turn.request_id);
  turn.numerics_id = Untie(fields[8].text(), turn.request_id);
  if (turn.finish == TurnFinish::kRunning) {
    turn.end = info.token_count;
    turn.response = std::string(running_text);
  }
  return turn;
}

// Checks the hashes of the log. The script has already checked the session's other fields.
absl::Status CheckHashes(absl::string_view id, RedisValue answer) {
  const absl::string_view state = answer[6].text();
  if (state == "old") return absl::OkStatus();
  if (state != "ok") return FieldsDamaged(id);
  const RedisValue chains = answer[7];
  if (Sha1Chain(answer[3].text()) != chains[0].text()) {
    return SessionDamaged(id, "its log does not match its hash");
  }
  if (Sha1Chain(answer[4].text()) != chains[1].text()) {
    return SessionDamaged(id, "the text of its running turn does not match its hash");
  }
  const RedisValue turns = answer[5];
  std::string hash;
  for (size_t i = 0; i < turns.size(); ++i) {
    const RedisValue t = turns[i];
    const std::string input =
        Sha1Hex(PackValues({t[0].text(), t[1].text(), t[2].text(), t[4].text(), t[7].text()}));
    if (input != t[9].text()) {
      return SessionDamaged(id, absl::StrCat("the input of turn ", i, " does not match its hash"));
    }
    if (absl::StrCat(i) == chains[3].text()) continue;
    const std::string end = PackValues({t[3].text(), t[6].text(), t[8].text()});
    hash = Sha1Hex(absl::StrCat(hash, input, end, Sha1Digest(t[5].text())));
  }
  if (hash == chains[2].text()) return absl::OkStatus();
  return SessionDamaged(id, "its turns do not match their hash");
}

}  // namespace

void EncodeSession(const SessionLogData& session, std::vector<std::string>* fields) {
  const SessionInfo& info = session.info;
  Put("model", info.model, fields);
  Put("digest", info.model_digest, fields);
  Put("kind", absl::StrCat(static_cast<int>(info.kind)), fields);
  Put("create_us", absl::StrCat(absl::ToUnixMicros(info.create_time)), fields);
  Put("update_us", absl::StrCat(absl::ToUnixMicros(info.update_time)), fields);
  Put("tokens", absl::StrCat(session.token_ids.size()), fields);
  Put("turns", absl::StrCat(session.turns.size()), fields);
  for (size_t i = 0; i < session.turns.size(); ++i) EncodeTurn(i, session.turns[i], fields);
}

SessionInfo DecodeInfo(RedisValue fields, int64_t now_us) {
  SessionInfo info;
  info.session_id = std::string(fields[0].text());
  info.principal = std::string(fields[1].text());
  info.model = std::string(fields[2].text());
  info.model_digest = std::string(fields[3].text());
  info.kind = static_cast<SessionKind>(fields[4].integer());
  info.create_time = absl::FromUnixMicros(fields[5].integer());
  info.update_time = absl::FromUnixMicros(fields[6].integer());
  info.token_count = fields[7].integer();
  info.turn_count = static_cast<int32_t>(fields[8].integer());
  info.epoch = fields[9].integer();
  info.busy = HoldsLease(fields[10].integer(), now_us);
  return info;
}

SessionInfo DecodeListed(RedisValue listed, int64_t now_us) {
  const absl::string_view state = listed[12].text();
  const absl::string_view id = listed[13].text();
  if (state == "missing") return DamagedSession(id, SessionMissing(id));
  if (state == "damaged" || listed[0].text() != id) return DamagedSession(id, FieldsDamaged(id));
  return DecodeInfo(listed, now_us);
}

absl::StatusOr<SessionLogData> DecodeLog(absl::string_view id, RedisValue answer) {
  SessionLogData log;
  log.info = DecodeInfo(answer[2], answer[1].integer());
  if (log.info.session_id != id) return FieldsDamaged(id);
  RETURN_IF_ERROR(CheckHashes(id, answer));
  const absl::Status unpacked = UnpackTokens(answer[3].text(), &log.token_ids);
  const int64_t length = static_cast<int64_t>(log.token_ids.size());
  if (!unpacked.ok() || length != log.info.token_count) {
    return SessionDamaged(
        id, absl::StrCat("its log has ", length, " tokens, expected ", log.info.token_count));
  }
  const RedisValue turns = answer[5];
  for (size_t i = 0; i < turns.size(); ++i) {
    absl::StatusOr<StoredTurn> turn = DecodeTurn(turns[i], log.info, answer[4].text());
    if (!turn.ok()) return WithSession(id, turn.status());
    log.turns.push_back(*std::move(turn));
  }
  EndAbandonedTurn(&log);
  return log;
}

}  // namespace tidepool::service
