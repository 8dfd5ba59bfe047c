#include "service/store/message_json.h"

#include <optional>

#include "nlohmann/json.hpp"

namespace tidepool::service {
namespace {

using Json = nlohmann::json;

void Put(const char* key, const std::optional<std::string>& value, Json* object) {
  if (value.has_value()) (*object)[key] = *value;
}

// Returns false if the key has a value that is not a string.
bool Take(const Json& object, const char* key, std::optional<std::string>* value) {
  const auto found = object.find(key);
  if (found == object.end()) return true;
  if (!found->is_string()) return false;
  *value = found->get<std::string>();
  return true;
}

}  // namespace

std::string MessagesToJson(const std::vector<StoredMessage>& messages) {
  Json array = Json::array();
  for (const StoredMessage& message : messages) {
    Json object = {{"role", message.role}, {"content", message.content}};
    Put("name", message.name, &object);
    Put("tool_call_id", message.tool_call_id, &object);
    Put("tool_calls_json", message.tool_calls_json, &object);
    Put("reasoning_content", message.reasoning_content, &object);
    array.push_back(std::move(object));
  }
  return array.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::vector<StoredMessage>> MessagesFromJson(absl::string_view json) {
  const absl::Status damaged =
      absl::DataLossError("session store: a turn's messages are damaged; delete the session");
  const Json array = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!array.is_array()) return damaged;
  std::vector<StoredMessage> messages;
  for (const Json& object : array) {
    if (!object.is_object()) return damaged;
    StoredMessage message;
    std::optional<std::string> role, content;
    if (!Take(object, "role", &role) || !Take(object, "content", &content) || !role || !content ||
        !Take(object, "name", &message.name) ||
        !Take(object, "tool_call_id", &message.tool_call_id) ||
        !Take(object, "tool_calls_json", &message.tool_calls_json) ||
        !Take(object, "reasoning_content", &message.reasoning_content)) {
      return damaged;
    }
    message.role = *std::move(role);
    message.content = *std::move(content);
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tidepool::service
