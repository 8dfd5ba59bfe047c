#include "service/front/output_events.h"

#include <utility>

#include "service/tools/call_id.h"

namespace tidepool::service {
namespace {

// The first piece of a tool call gets the id of the call.
v1::OutputEvent EventOf(OutputPiece piece, const OutputEvents::Names& names) {
  v1::OutputEvent event;
  switch (piece.kind) {
    case OutputPiece::Kind::kReasoning:
      event.set_reasoning(std::move(piece.text));
      break;
    case OutputPiece::Kind::kContent:
      event.set_content(std::move(piece.text));
      break;
    case OutputPiece::Kind::kCall:
      event.mutable_tool_call()->set_index(piece.call);
      event.mutable_tool_call()->set_id(CallId(names.principal, names.request_id, piece.call));
      event.mutable_tool_call()->set_name(std::move(piece.text));
      break;
    case OutputPiece::Kind::kArguments:
      event.mutable_tool_call()->set_index(piece.call);
      event.mutable_tool_call()->set_arguments(std::move(piece.text));
      break;
  }
  return event;
}

}  // namespace

void AppendEvent(v1::OutputEvent event, EventList* events) {
  v1::OutputEvent* const last = events->empty() ? nullptr : &*events->rbegin();
  if (last != nullptr && last->event_case() == event.event_case()) {
    if (event.has_reasoning()) {
      last->mutable_reasoning()->append(event.reasoning());
      return;
    }
    if (event.has_content()) {
      last->mutable_content()->append(event.content());
      return;
    }
    if (event.tool_call().id().empty() && event.tool_call().index() == last->tool_call().index()) {
      last->mutable_tool_call()->mutable_arguments()->append(event.tool_call().arguments());
      return;
    }
  }
  *events->Add() = std::move(event);
}

std::shared_ptr<const ToolSchemas> ToolsOf(const v1::GenerateRequest& request) {
  const v1::Chat& chat = request.chat();
  if (!request.parse_output() || !chat.has_tools_json()) return nullptr;
  if (chat.tool_choice().mode() == v1::ToolChoice::NONE) return nullptr;
  return std::make_shared<ToolSchemas>(chat.tools_json());
}

void OutputEvents::AddTo(v1::GenerateResponse* message) {
  OutputPieces pieces;
  parser_.Feed(message->text(), &pieces);
  if (message->finish_reason() != v1::FINISH_REASON_UNSPECIFIED) parser_.Finish(&pieces);
  for (OutputPiece& piece : pieces) {
    AppendEvent(EventOf(std::move(piece), names_), message->mutable_events());
  }
}

void OutputEvents::Skip(absl::string_view text) {
  OutputPieces pieces;
  parser_.Feed(text, &pieces);
}

}  // namespace tidepool::service
