#include "service/http/chat_messages.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/base/utf8.h"
#include "service/base/chat_roles.h"

namespace tidepool::service {
namespace {

std::string At(absl::string_view name, size_t index) { return absl::StrCat(name, "[", index, "]"); }

// Concatenates the text parts of a message.
std::string JoinParts(const Json& parts, const std::string& path, JsonFields* fields) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string where = At(path, i);
    if (!parts[i].is_object()) {
      fields->Fail(where, "is not an object; it must be {\"type\": \"text\", \"text\": ...}");
      return text;
    }
    JsonFields part = fields->Inside(parts[i], where + ".");
    const auto type = part.String("type");
    if (!type.has_value()) part.Missing("type", "is missing");
    const std::string kind = type.value_or("text");
    if (kind != "text" && kind != "refusal") {
      fields->Fail(where + ".type",
                   absl::StrCat("is ", base::Quoted(kind), "; only \"text\" is supported yet"));
      return text;
    }
    const auto value = part.String(kind);
    if (!value.has_value()) part.Missing(kind, "is missing");
    fields->Fail(part.Done());
    absl::StrAppend(&text, value.value_or(""));
  }
  return text;
}

// Converts a tool call of an assistant message for chat templates. They need its arguments as an
// object. In OpenAI's format, the arguments are JSON text.
Json ReadToolCall(const Json& call, const std::string& path, JsonFields* fields) {
  if (!call.is_object()) {
    fields->Fail(path, "is not an object");
    return {};
  }
  JsonFields outer = fields->Inside(call, path + ".");
  const std::string id = outer.String("id").value_or("");
  // OpenAI numbers the calls of a stream, and clients send the number back
  outer.Find("index", {"integer"});
  outer.Object("provider_specific_fields");
  if (outer.String("type").value_or("function") != "function") {
    outer.Fail("type", "is not \"function\"");
  }
  const Json* function = outer.Object("function");
  if (function == nullptr) outer.Missing("function", "is missing");
  fields->Fail(outer.Done());
  if (function == nullptr) return {};
  JsonFields inner = fields->Inside(*function, path + ".function.");
  const auto name = inner.String("name");
  if (!name.has_value()) inner.Missing("name", "is missing");
  const std::string text = inner.String("arguments").value_or("{}");
  inner.Object("provider_specific_fields");
  absl::StatusOr<Json> arguments = ParseJsonText(text.empty() ? "{}" : text);
  if (!arguments.ok() || !arguments->is_object()) {
    inner.Fail("arguments", "is not the text of a JSON object");
    arguments = Json::object();
  }
  fields->Fail(inner.Done());
  Json read = {{"type", "function"},
               {"function", {{"name", name.value_or("")}, {"arguments", *std::move(arguments)}}}};
  if (!id.empty()) read["id"] = id;
  return read;
}

void ReadToolCalls(const Json& calls, const std::string& path, JsonFields* fields,
                   v1::ChatMessage* message) {
  Json list = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    list.push_back(ReadToolCall(calls[i], At(path, i), fields));
  }
  if (!list.empty()) message->set_tool_calls_json(DumpJson(list));
}

void ReadMessage(const Json& json, const std::string& path, JsonFields* fields,
                 v1::ChatMessage* message) {
  if (!json.is_object()) return fields->Fail(path, "is not an object");
  JsonFields read = fields->Inside(json, path + ".");
  const auto role = read.String("role");
  if (!role.has_value()) {
    read.Missing("role", "is missing");
  } else if (!IsChatRole(*role)) {
    read.Fail("role", absl::StrCat("is ", base::Quoted(*role),
                                   "; accepted: ", absl::StrJoin(kChatRoles, ", ")));
  }
  message->set_role(std::string(TemplateRole(role.value_or(""))));
  const Json* calls = read.Array("tool_calls");
  const Json* content = read.Find("content", {"string", "array"});
  // If the message has no content, its refusal is used as the content.
  const auto refusal = read.String("refusal");
  if (content == nullptr) {
    if (calls == nullptr && !refusal.has_value()) read.Fail("content", "is missing");
    message->set_content(refusal.value_or(""));
  } else if (content->is_array()) {
    message->set_content(JoinParts(*content, path + ".content", fields));
  } else if (content->is_string()) {
    message->set_content(content->get<std::string>());
  } else {
    read.Fail("content", "must be a string or a list of parts");
  }
  if (const auto name = read.String("name")) message->set_name(*name);
  if (const auto id = read.String("tool_call_id")) message->set_tool_call_id(*id);
  if (calls != nullptr) ReadToolCalls(*calls, path + ".tool_calls", fields, message);
  // "reasoning" is vLLM's name since 0.12. Templates and other servers use "reasoning_content".
  if (const auto thought = read.String("reasoning")) message->set_reasoning_content(*thought);
  if (const auto thought = read.String("reasoning_content")) {
    message->set_reasoning_content(*thought);
  }
  // Responses of servers contain these fields, and clients send them back. Templates do not get
  // them.
  read.Array("annotations");
  read.Object("provider_specific_fields");  // from LiteLLM
  read.NotServed("audio");
  read.NotServed("function_call", Json(), "use tool_calls");
  fields->Fail(read.Done());
}

void ReadTools(JsonFields* fields, v1::Chat* chat) {
  const Json* tools = fields->Array("tools");
  const Json* choice = fields->Find("tool_choice", {"string", "object"});
  if (choice != nullptr && *choice != "auto" && *choice != "none") {
    fields->Fail("tool_choice", "supports only \"auto\" and \"none\" yet");
  }
  const bool parallel = fields->Bool("parallel_tool_calls").value_or(true);
  fields->NotServed("functions", Json(), "use tools");
  fields->NotServed("function_call", Json(), "use tool_choice");
  if (tools == nullptr || tools->empty()) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string path = At("tools", i);
    if (!tool.is_object()) {
      return fields->Fail(path, "must be {\"type\": \"function\", \"function\": {...}}");
    }
    JsonFields outer = fields->Inside(tool, path + ".");
    const Json* function = outer.Object("function");
    if (outer.String("type").value_or("") != "function") {
      outer.Fail("type", "is not \"function\", the only supported type");
    }
    if (function == nullptr) outer.Missing("function", "is missing");
    fields->Fail(outer.Done());
    if (function == nullptr) return;
    JsonFields inner = fields->Inside(*function, path + ".function.");
    if (!inner.String("name").has_value()) inner.Missing("name", "is missing");
    inner.String("description");
    inner.Object("parameters");
    inner.NotServed("strict", false);
    fields->Fail(inner.Done());
  }
  // If the prompt contains no tools, the model calls none.
  if (choice != nullptr && *choice == "none") return;
  if (!parallel) fields->NotServed("parallel_tool_calls", true);
  chat->set_tools_json(DumpJson(*tools));
}

// Templates that read the variable reasoning_effort write it into the prompt.
void ReadReasoningEffort(JsonFields* fields, v1::Chat* chat) {
  const auto effort = fields->String("reasoning_effort");
  if (!effort.has_value()) return;
  constexpr absl::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    return fields->Fail(
        "reasoning_effort",
        absl::StrCat("is ", base::Quoted(*effort), "; accepted: ", absl::StrJoin(kEfforts, ", ")));
  }
  Json kwargs = Json::object();
  if (chat->has_template_kwargs_json()) {
    kwargs = Json::parse(chat->template_kwargs_json(), nullptr, /*allow_exceptions=*/false);
  }
  if (kwargs.contains("reasoning_effort") && kwargs["reasoning_effort"] != *effort) {
    return fields->Fail("reasoning_effort",
                        "and chat_template_kwargs.reasoning_effort differ; send one of them");
  }
  kwargs["reasoning_effort"] = *effort;
  chat->set_template_kwargs_json(DumpJson(kwargs));
}

}  // namespace

void ReadChat(JsonFields* fields, v1::Chat* chat) {
  const Json* messages = fields->Array("messages");
  const bool empty = fields->IsEmpty("messages", messages);
  if (messages == nullptr) {
    fields->Missing("messages", "is missing; send 1 message or more");
  } else if (empty) {
    fields->Fail("messages", "is empty; send 1 message or more");
  } else {
    for (size_t i = 0; i < messages->size(); ++i) {
      ReadMessage((*messages)[i], At("messages", i), fields, chat->add_messages());
    }
  }
  ReadTools(fields, chat);
  if (const Json* kwargs = fields->Object("chat_template_kwargs")) {
    chat->set_template_kwargs_json(DumpJson(*kwargs));
  }
  fields->NotServed("chat_template");
  fields->NotServed("documents");
  if (const auto add = fields->Bool("add_generation_prompt")) chat->set_add_generation_prompt(*add);
  chat->set_continue_final_message(fields->Bool("continue_final_message").value_or(false));
  ReadReasoningEffort(fields, chat);
}

}  // namespace tidepool::service
