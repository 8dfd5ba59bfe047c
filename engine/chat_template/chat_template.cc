#include "engine/chat_template/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/ast.h"
#include "engine/chat_template/jinja/interpreter.h"
#include "engine/chat_template/jinja/json.h"
#include "engine/chat_template/jinja/parser.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

absl::Status CheckMessages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return absl::InvalidArgumentError("chat messages are not an array");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("chat message ", i, " is not an object with a role and content"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetVariables(const ChatInputs& inputs, jinja::Interpreter* interpreter) {
  using jinja::Value;
  RETURN_IF_ERROR(CheckMessages(inputs.messages));
  ASSIGN_OR_RETURN(Value messages, jinja::FromJson(inputs.messages, "the chat messages"));
  ASSIGN_OR_RETURN(Value tools, jinja::FromJson(inputs.tools, "the tools"));
  const auto ours = [](const std::string& text) {
    return Value::MakeText(text, TextOrigin::kTemplate);
  };
  std::vector<std::pair<absl::string_view, Value>> variables = {
      {"messages", std::move(messages)},
      {"tools", std::move(tools)},
      {"documents", Value()},
      {"add_generation_prompt", Value::MakeBool(inputs.add_generation_prompt)},
      {"bos_token", ours(inputs.bos_token)},
      {"eos_token", ours(inputs.eos_token)},
  };
  const nlohmann::ordered_json& more = inputs.template_kwargs;
  if (!more.is_null() && !more.is_object()) {
    return absl::InvalidArgumentError("template_kwargs are not an object");
  }
  for (const auto& [name, json] : more.items()) {
    for (const auto& [taken, unused] : variables) {
      if (name == taken && name != "documents") {
        return absl::InvalidArgumentError(absl::StrCat("template_kwargs cannot set '", name,
                                                       "': use the request's own field for it"));
      }
    }
    ASSIGN_OR_RETURN(Value value, jinja::FromJson(json, "template_kwargs"));
    interpreter->SetVariable(name, std::move(value));
  }
  for (auto& [name, value] : variables) {
    if (name == "documents" && more.contains("documents")) continue;
    interpreter->SetVariable(name, std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Block block;
};

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(jinja::Block block, jinja::ParseTemplate(source));
  return ChatTemplate(std::make_shared<const Parsed>(Parsed{std::move(block)}));
}

absl::StatusOr<std::vector<TextPiece>> ChatTemplate::Render(
    const ChatInputs& inputs, const ChatTemplateLimits& limits) const {
  jinja::Interpreter interpreter(
      {{limits.steps, limits.made_bytes, limits.text_bytes}, limits.output_bytes, inputs.now});
  RETURN_IF_ERROR(SetVariables(inputs, &interpreter));
  ASSIGN_OR_RETURN(const jinja::Text text, interpreter.Run(parsed_->block));
  return text.Pieces();
}

absl::StatusOr<std::string> ChatTemplate::RenderText(const ChatInputs& inputs,
                                                     const ChatTemplateLimits& limits) const {
  ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces, Render(inputs, limits));
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace tidepool::engine
