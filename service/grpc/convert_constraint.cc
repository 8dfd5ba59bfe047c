// Converts the constraints of a request to those of a worker and of the engine.
#include "service/grpc/convert.h"

namespace tidepool::service {
namespace {

using engine::grammar::GrammarKind;
using engine::grammar::GrammarSource;

void CopyChat(const v1::GenerateRequest& request, worker::v1::ChatOutput* out) {
  const v1::Chat& chat = request.chat();
  // Without tools in the prompt, there are no calls.
  if (chat.tool_choice().mode() != v1::ToolChoice::NONE) out->set_tools_json(chat.tools_json());
  if (chat.has_tool_choice()) *out->mutable_tool_choice() = chat.tool_choice();
  if (chat.has_parallel_tool_calls()) out->set_parallel_tool_calls(chat.parallel_tool_calls());
  if (request.has_thinking_budget_tokens()) {
    out->set_thinking_budget_tokens(request.thinking_budget_tokens());
  }
  out->set_continue_final_message(chat.continue_final_message());
}

}  // namespace

std::optional<GrammarSource> ConstraintOf(const worker::v1::Start& start) {
  using worker::v1::Constraint;
  const Constraint& message = start.constraint();
  GrammarSource source;
  source.whitespace_pattern = message.whitespace_pattern();
  source.coerce_one_of = message.coerce_one_of();
  switch (message.constraint_case()) {
    case Constraint::kJsonSchema:
      source.kind = GrammarKind::kJsonSchema;
      source.text = message.json_schema();
      return source;
    case Constraint::kRegex:
      source.kind = GrammarKind::kRegex;
      source.text = message.regex();
      return source;
    case Constraint::kChoice:
      source.kind = GrammarKind::kChoice;
      source.choices.assign(message.choice().texts().begin(), message.choice().texts().end());
      return source;
    case Constraint::kGrammar:
      source.kind = GrammarKind::kGbnf;
      source.text = message.grammar();
      return source;
    case Constraint::CONSTRAINT_NOT_SET:
      break;
  }
  return std::nullopt;
}

void CopyConstraint(const v1::GenerateRequest& request, worker::v1::Start* start) {
  if (request.has_chat()) CopyChat(request, start->mutable_chat());
  if (request.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET) return;
  worker::v1::Constraint* out = start->mutable_constraint();
  if (request.has_json_schema()) out->set_json_schema(request.json_schema());
  if (request.has_regex()) out->set_regex(request.regex());
  if (request.has_choice()) *out->mutable_choice() = request.choice();
  if (request.has_grammar()) out->set_grammar(request.grammar());
  out->set_whitespace_pattern(request.whitespace_pattern());
  out->set_coerce_one_of(request.coerce_one_of());
}

}  // namespace tidepool::service
