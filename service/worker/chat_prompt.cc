#include "service/worker/chat_prompt.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "service/base/chat_roles.h"
#include "service/tools/arguments_object.h"
#include "service/tools/call_id.h"
#include "service/tools/tool_syntax.h"
#include "service/worker/generic_tools.h"

namespace tidepool::service {
namespace {

using engine::TextPiece;
using Json = nlohmann::ordered_json;

// Replaces the ids of calls by those that Mistral's templates accept.
void ShortenIds(Json* message) {
  if (message->contains("tool_call_id")) {
    (*message)["tool_call_id"] = ShortCallId((*message)["tool_call_id"].get<std::string>());
  }
  if (!message->contains("tool_calls")) return;
  for (Json& call : (*message)["tool_calls"]) {
    if (!call.is_object() || !call.contains("id") || !call["id"].is_string()) continue;
    call["id"] = ShortCallId(call["id"].get<std::string>());
  }
}

// Templates need the arguments of calls as objects. In OpenAI's format they are text, which
// max_tokens may have cut.
void ReadArguments(Json* calls) {
  if (!calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (arguments.is_string()) arguments = ArgumentsObject(arguments.get<std::string>());
  }
}

// Returns the message as the model's template reads it.
Json MessageJson(const WorkerModel& model, const v1::ChatMessage& message) {
  Json object = {{"role", TemplateRole(message.role())}, {"content", message.content()}};
  if (message.has_name()) object["name"] = message.name();
  if (message.has_tool_call_id()) object["tool_call_id"] = message.tool_call_id();
  if (message.has_tool_calls_json()) {
    object["tool_calls"] = Json::parse(message.tool_calls_json(), nullptr, false);
    ReadArguments(&object["tool_calls"]);
  }
  if (message.has_reasoning_content()) {
    object["reasoning_content"] = message.reasoning_content();
    // The template of gpt-oss reads the reasoning from `thinking`. It rejects messages with calls
    // that have both `thinking` and content.
    if (model.tool_syntax == v1::HARMONY && message.content().empty()) {
      object["thinking"] = message.reasoning_content();
    }
  }
  if (model.tool_syntax == v1::MISTRAL_LIST || model.tool_syntax == v1::MISTRAL_ARGS) {
    ShortenIds(&object);
  }
  return object;
}

// Requires: the JSON texts in `chat` have passed CheckGenerateRequest.
engine::ChatInputs MakeInputs(const WorkerModel& model, const v1::Chat& chat,
                              const ChatMessages& messages, absl::Time now) {
  engine::ChatInputs inputs;
  for (const v1::ChatMessage& message : messages) {
    inputs.messages.push_back(MessageJson(model, message));
  }
  inputs.bos_token = std::string(model.tokenizer->bos_text());
  inputs.eos_token = std::string(model.tokenizer->eos_text());
  const bool wants_tools = chat.tool_choice().mode() != v1::ToolChoice::NONE;
  if (chat.has_tools_json() && wants_tools) {
    inputs.tools = Json::parse(chat.tools_json(), nullptr, false);
  }
  if (chat.has_template_kwargs_json()) {
    inputs.template_kwargs = Json::parse(chat.template_kwargs_json(), nullptr, false);
  }
  inputs.now = now;
  inputs.add_generation_prompt = chat.has_add_generation_prompt() ? chat.add_generation_prompt()
                                                                  : !chat.continue_final_message();
  return inputs;
}

// Returns `pieces` without the first `bytes` bytes.
std::vector<TextPiece> DropFront(std::vector<TextPiece> pieces, size_t bytes) {
  std::vector<TextPiece> rest;
  for (TextPiece& piece : pieces) {
    const size_t cut = std::min(bytes, piece.text.size());
    bytes -= cut;
    if (cut == piece.text.size()) continue;
    rest.push_back({piece.text.substr(cut), piece.origin});
  }
  return rest;
}

// Returns a word that does not occur in `text`, and that templates copy unchanged.
std::string UnusedWord(absl::string_view text) {
  for (int i = 0;; ++i) {
    std::string word = absl::StrCat("TidepoolAnswer", i, "Here");
    if (!absl::StrContains(text, word)) return word;
  }
}

// Returns the first `bytes` bytes of `pieces`.
std::vector<TextPiece> KeepFront(const std::vector<TextPiece>& pieces, size_t bytes) {
  std::vector<TextPiece> front;
  for (const TextPiece& piece : pieces) {
    if (bytes == 0) break;
    const size_t kept = std::min(bytes, piece.text.size());
    front.push_back({piece.text.substr(0, kept), piece.origin});
    bytes -= kept;
  }
  return front;
}

// Removes everything after the content of the last message from the rendering.
absl::Status EndInLastMessage(const engine::ChatTemplate& chat_template, RenderedChat* chat) {
  const int last = static_cast<int>(chat->inputs.messages.size()) - 1;
  Seam seam;
  if (!FindSeam(chat_template, chat->inputs, last, chat->text, &seam)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat.continue_final_message is not supported: the model's chat template does "
                     "not copy the content of messages[",
                     last, "] unchanged; unset the field"));
  }
  chat->pieces = KeepFront(chat->pieces, seam.content_end);
  chat->text.resize(seam.content_end);
  return absl::OkStatus();
}

// Renders the conversation. If the template does not support tools, describes them in the system
// message. If the template rejects system messages, describes them in the first message of the
// user.
absl::StatusOr<std::vector<TextPiece>> RenderInputs(const WorkerModel& model, RenderedChat* chat) {
  if (model.tool_syntax != v1::GENERIC_TOOLS) return model.chat_template->Render(chat->inputs);
  const engine::ChatInputs plain = chat->inputs;
  chat->added_messages = DescribeTools(ToolsPlace::kSystemMessage, &chat->inputs);
  absl::StatusOr<std::vector<TextPiece>> pieces = model.chat_template->Render(chat->inputs);
  const bool added_system = chat->added_messages > 0;
  if (!absl::IsInvalidArgument(pieces.status()) || !added_system) return pieces;
  chat->inputs = plain;
  chat->added_messages = DescribeTools(ToolsPlace::kUserMessage, &chat->inputs);
  return model.chat_template->Render(chat->inputs);
}

}  // namespace

std::string JoinPieces(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

absl::StatusOr<RenderedChat> RenderChat(const WorkerModel& model, const v1::Chat& chat,
                                        const ChatMessages& messages, absl::Time now) {
  if (!model.chat_template.ok()) return model.chat_template.status();
  RenderedChat rendered = {.inputs = MakeInputs(model, chat, messages, now)};
  const bool has_tools = rendered.inputs.tools.is_array() && !rendered.inputs.tools.empty();
  if (has_tools && model.tool_syntax == v1::TOOL_SYNTAX_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat.tools_json has no effect: the chat template of model '", model.name,
                     "' does not support tools; leave it out"));
  }
  absl::StatusOr<std::vector<TextPiece>> pieces = RenderInputs(model, &rendered);
  // RESOURCE_EXHAUSTED would tell the client to retry. But the template has exceeded its own limit,
  // so a retry would fail, too.
  if (absl::IsResourceExhausted(pieces.status())) {
    return absl::InvalidArgumentError(pieces.status().message());
  }
  ASSIGN_OR_RETURN(rendered.pieces, std::move(pieces));
  rendered.text = JoinPieces(rendered.pieces);
  if (chat.continue_final_message()) {
    RETURN_IF_ERROR(EndInLastMessage(*model.chat_template, &rendered));
  }
  rendered.in_reasoning = EndsInReasoning(rendered.text, model.reasoning) ||
                          (chat.continue_final_message() &&
                           ContinuesReasoning(messages.rbegin()->content(), model.reasoning));
  return rendered;
}

bool FindSeam(const engine::ChatTemplate& chat_template, engine::ChatInputs inputs, int index,
              absl::string_view rendered, Seam* seam) {
  const std::string word = UnusedWord(rendered);
  inputs.messages[index]["content"] = word;
  absl::StatusOr<std::vector<TextPiece>> marked_pieces = chat_template.Render(inputs);
  if (!marked_pieces.ok()) return false;
  const std::string marked = JoinPieces(*marked_pieces);
  const size_t at = marked.rfind(word);
  if (at == std::string::npos) return false;
  const absl::string_view rest = absl::string_view(marked).substr(at + word.size());
  if (rendered.size() < at + rest.size() || !absl::EndsWith(rendered, rest) ||
      rendered.substr(0, at) != absl::string_view(marked).substr(0, at)) {
    return false;
  }
  seam->content_begin = at;
  seam->content_end = rendered.size() - rest.size();
  seam->after = DropFront(*std::move(marked_pieces), at + word.size());
  return true;
}

}  // namespace tidepool::service
