#include "service/http/chat_messages.h"

#include <algorithm>
#include <cstdint>
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

// Converts a tool call of an assistant message for chat templates. Templates need the call's
// arguments as an object, but in OpenAI's format they are JSON text. If the text is not valid JSON,
// because a response was cut or a model made a mistake, it stays text. Then the worker makes an
// object of it.
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
  inner.Find("parsed_arguments");
  absl::StatusOr<Json> arguments = ParseJsonText(text.empty() ? "{}" : text);
  if (!arguments.ok() || !arguments->is_object()) arguments = Json(text);
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
  read.Find("parsed");                      // from parse() of OpenAI's client
  read.NotServed("audio");
  read.NotServed("function_call", Json(), "use tool_calls");
  fields->Fail(read.Done());
}

// Reads {"type": "function", "function": {"name": ...}} into `choice`.
void ReadNamedTool(const Json& tool, const std::string& path, JsonFields* fields,
                   v1::ToolChoice* choice) {
  if (!tool.is_object()) return fields->Fail(path, "is not an object");
  JsonFields outer = fields->Inside(tool, path + ".");
  if (outer.String("type").value_or("") != "function") {
    outer.Fail("type", "is not \"function\", the only supported type of tools");
  }
  const Json* function = outer.Object("function");
  if (function == nullptr) {
    outer.Missing("function", "is missing");
  } else {
    JsonFields inner = fields->Inside(*function, path + ".function.");
    const auto name = inner.String("name");
    if (!name.has_value()) inner.Missing("name", "is missing");
    choice->add_names(name.value_or(""));
    fields->Fail(inner.Done());
  }
  fields->Fail(outer.Done());
}

void ReadAllowedTools(const Json& json, JsonFields* fields, v1::ToolChoice* choice) {
  JsonFields outer = fields->Inside(json, "tool_choice.");
  outer.String("type");
  const Json* allowed = outer.Object("allowed_tools");
  if (allowed == nullptr) outer.Missing("allowed_tools", "is missing");
  fields->Fail(outer.Done());
  if (allowed == nullptr) return;
  JsonFields inner = fields->Inside(*allowed, "tool_choice.allowed_tools.");
  const std::string mode = inner.String("mode").value_or("");
  if (mode == "required") choice->set_mode(v1::ToolChoice::REQUIRED);
  if (mode != "required" && mode != "auto") {
    inner.Fail("mode", "must be \"auto\" or \"required\"");
  }
  const Json* tools = inner.Array("tools");
  if (inner.IsEmpty("tools", tools)) inner.Fail("tools", "is empty; name 1 tool or more");
  if (tools == nullptr) inner.Missing("tools", "is missing");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    ReadNamedTool((*tools)[i], At("tool_choice.allowed_tools.tools", i), fields, choice);
  }
  fields->Fail(inner.Done());
}

// Reads tool_choice. `only_one` becomes true if the response must have exactly one call.
v1::ToolChoice ReadToolChoice(JsonFields* fields, bool* only_one) {
  v1::ToolChoice choice;
  const Json* json = fields->Find("tool_choice", {"string", "object"});
  if (json == nullptr || *json == "auto") return choice;
  if (*json == "none") {
    choice.set_mode(v1::ToolChoice::NONE);
  } else if (*json == "required") {
    choice.set_mode(v1::ToolChoice::REQUIRED);
  } else if (!json->is_object()) {
    fields->Fail("tool_choice",
                 "must be \"auto\", \"none\", \"required\", a function or allowed_tools");
  } else if (json->value("type", Json()) == "allowed_tools") {
    ReadAllowedTools(*json, fields, &choice);
  } else {
    choice.set_mode(v1::ToolChoice::REQUIRED);
    *only_one = true;
    ReadNamedTool(*json, "tool_choice", fields, &choice);
  }
  return choice;
}

void ReadTool(const Json& tool, const std::string& path, JsonFields* fields) {
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
  inner.Bool("strict");
  fields->Fail(inner.Done());
}

void ReadTools(JsonFields* fields, v1::Chat* chat) {
  const Json* tools = fields->Array("tools");
  bool only_one = false;
  v1::ToolChoice choice = ReadToolChoice(fields, &only_one);
  const auto parallel = fields->Bool("parallel_tool_calls");
  fields->NotServed("functions", Json(), "use tools");
  fields->NotServed("function_call", Json(), "use tool_choice");
  const bool has_tools = tools != nullptr && !tools->empty();
  for (size_t i = 0; has_tools && i < tools->size(); ++i) {
    ReadTool((*tools)[i], At("tools", i), fields);
  }
  // If the prompt contains no tools, the model calls none.
  if (choice.mode() == v1::ToolChoice::NONE) return;
  if (choice.mode() != v1::ToolChoice::AUTO || !choice.names().empty()) {
    *chat->mutable_tool_choice() = std::move(choice);
  }
  if (!has_tools) {
    if (chat->has_tool_choice()) fields->Fail("tool_choice", "needs tools; add tools");
    return;
  }
  if (parallel.has_value() || only_one) {
    chat->set_parallel_tool_calls(parallel.value_or(true) && !only_one);
  }
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

void ReadThinkingBudget(JsonFields* fields, v1::GenerateRequest* request) {
  for (const char* name : {"thinking_budget_tokens", "thinking_token_budget"}) {
    const auto tokens = fields->Integer(name, -1, INT32_MAX);
    if (!tokens.has_value() || *tokens < 0) continue;
    request->set_thinking_budget_tokens(static_cast<int32_t>(*tokens));
  }
}

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
