#include "service/worker/generic_tools.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string Description(const Json& tools) {
  std::string text =
      "You can call tools. Each line between <tools> and </tools> describes one of them as "
      "JSON.\n<tools>\n";
  for (const Json& tool : tools) absl::StrAppend(&text, Dump(tool), "\n");
  absl::StrAppend(
      &text,
      "</tools>\nTo call a tool, write its name and its arguments as one JSON object between tags, "
      "once for each call:\n<tool_call>\n{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": "
      "VALUE}}\n</tool_call>\nThe results come between <tool_response> and </tool_response>. If "
      "you "
      "need no tool, answer without a call.");
  return text;
}

// Returns the text of a message's calls, as the model writes them.
std::string CallsText(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    const Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("name")) continue;
    const Json arguments = function.value("arguments", Json::object());
    // Arguments that are text are JSON already.
    const std::string json = arguments.is_string() ? arguments.get<std::string>() : Dump(arguments);
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    "<tool_call>\n{\"name\": ", Dump(function["name"]), ", \"arguments\": ", json,
                    "}\n</tool_call>");
  }
  return text;
}

void WriteAsText(Json* message) {
  std::string content = message->value("content", std::string());
  if (message->contains("tool_calls")) {
    const std::string calls = CallsText((*message)["tool_calls"]);
    message->erase("tool_calls");
    absl::StrAppend(&content, content.empty() || calls.empty() ? "" : "\n", calls);
  }
  if (message->value("role", std::string()) == "tool") {
    (*message)["role"] = "user";
    message->erase("tool_call_id");
    content = absl::StrCat("<tool_response>\n", content, "\n</tool_response>");
  }
  (*message)["content"] = std::move(content);
}

}  // namespace

int DescribeTools(ToolsPlace place, engine::ChatInputs* inputs) {
  for (Json& message : inputs->messages) WriteAsText(&message);
  if (!inputs->tools.is_array() || inputs->tools.empty()) return 0;
  const std::string description = Description(inputs->tools);
  inputs->tools = Json();
  const std::string role = place == ToolsPlace::kSystemMessage ? "system" : "user";
  for (Json& message : inputs->messages) {
    if (message.value("role", std::string()) != role) continue;
    const std::string content = message.value("content", std::string());
    message["content"] = place == ToolsPlace::kSystemMessage
                             ? absl::StrCat(content, "\n\n", description)
                             : absl::StrCat(description, "\n\n", content);
    return 0;
  }
  Json message = {{"role", role}, {"content", description}};
  inputs->messages.insert(inputs->messages.begin(), std::move(message));
  return 1;
}

}  // namespace tidepool::service
