#include "service/front/convert_sessions.h"

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::service {
namespace {

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const int64_t micros = absl::ToUnixMicros(time);
  google::protobuf::Timestamp stamp;
  stamp.set_seconds(micros / 1'000'000);
  stamp.set_nanos(static_cast<int32_t>(micros % 1'000'000) * 1000);
  return stamp;
}

v1::SessionKind ToProto(SessionKind kind) {
  switch (kind) {
    case SessionKind::kNew:
      return v1::SESSION_KIND_UNSPECIFIED;
    case SessionKind::kTokens:
      return v1::TOKENS;
    case SessionKind::kChat:
      return v1::CHAT;
  }
  return v1::SESSION_KIND_UNSPECIFIED;  // a damaged store may contain an unknown value
}

}  // namespace

StoredMessage FromProto(const v1::ChatMessage& message) {
  StoredMessage out = {.role = message.role(), .content = message.content()};
  if (message.has_name()) out.name = message.name();
  if (message.has_tool_call_id()) out.tool_call_id = message.tool_call_id();
  if (message.has_tool_calls_json()) out.tool_calls_json = message.tool_calls_json();
  if (message.has_reasoning_content()) out.reasoning_content = message.reasoning_content();
  return out;
}

void ToProto(const StoredMessage& message, v1::ChatMessage* out) {
  out->set_role(message.role);
  out->set_content(message.content);
  if (message.name.has_value()) out->set_name(*message.name);
  if (message.tool_call_id.has_value()) out->set_tool_call_id(*message.tool_call_id);
  if (message.tool_calls_json.has_value()) out->set_tool_calls_json(*message.tool_calls_json);
  if (message.reasoning_content.has_value()) {
    out->set_reasoning_content(*message.reasoning_content);
  }
}

void ToProto(const SessionInfo& info, v1::Session* out) {
  out->set_session_id(info.session_id);
  out->set_model(info.model);
  out->set_kind(ToProto(info.kind));
  *out->mutable_create_time() = ToTimestamp(info.create_time);
  *out->mutable_update_time() = ToTimestamp(info.update_time);
  out->set_token_count(info.token_count);
  out->set_turn_count(info.turn_count);
  out->set_busy(info.busy);
  out->set_damage(info.damage);
}

void ToProto(const SessionLogData& log, v1::Session* out) {
  ToProto(log.info, out);
  out->mutable_token_ids()->Assign(log.token_ids.begin(), log.token_ids.end());
  for (size_t i = 0; i < log.turns.size(); ++i) {
    const StoredTurn& turn = log.turns[i];
    // If the log is cut, the next turn starts at the cut. So `kept` is the end of the tokens that
    // no cut after this turn has removed.
    int64_t kept = log.info.token_count;
    for (size_t j = i + 1; j < log.turns.size(); ++j) kept = std::min(kept, log.turns[j].start);
    v1::Turn* to = out->add_turns();
    to->set_request_id(turn.request_id);
    to->set_start(std::min(turn.start, kept));
    to->set_output_start(std::min(turn.output_start, kept));
    to->set_end(std::min(turn.end, kept));
    to->set_cut_tokens(turn.end - to->end());
    for (const StoredMessage& message : turn.messages) ToProto(message, to->add_messages());
    if (log.info.kind == SessionKind::kChat && turn.finish != TurnFinish::kRunning) {
      ToProto(ResponseMessage(turn), to->add_messages());
    }
    to->set_finish_reason(ToProto(turn.finish));
  }
}

v1::FinishReason ToProto(TurnFinish finish) {
  switch (finish) {
    case TurnFinish::kRunning:
      return v1::FINISH_REASON_UNSPECIFIED;
    case TurnFinish::kStop:
      return v1::STOP;
    case TurnFinish::kLength:
      return v1::LENGTH;
    case TurnFinish::kStopString:
      return v1::STOP_STRING;
    case TurnFinish::kCancelled:
      return v1::CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;  // a damaged store may contain an unknown value
}

TurnFinish FromProto(v1::FinishReason finish) {
  switch (finish) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return TurnFinish::kRunning;
    case v1::STOP:
      return TurnFinish::kStop;
    case v1::LENGTH:
      return TurnFinish::kLength;
    case v1::STOP_STRING:
      return TurnFinish::kStopString;
    case v1::CANCELLED:
      return TurnFinish::kCancelled;
    default:
      // A reason that only a newer version of the worker knows. In any case, the response has
      // ended.
      return TurnFinish::kStop;
  }
}

}  // namespace tidepool::service
