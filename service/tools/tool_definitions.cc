#include "service/tools/tool_definitions.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

ToolDefinition ReadTool(const Json& json, size_t index) {
  ToolDefinition tool = {.index = index};
  if (!json.is_object()) return tool;
  const auto wrapped = json.find("function");
  const Json& function = wrapped == json.end() ? json : *wrapped;
  if (!function.is_object()) return tool;
  if (const auto name = function.find("name"); name != function.end() && name->is_string()) {
    tool.name = name->get<std::string>();
  }
  if (const auto found = function.find("parameters");
      found != function.end() && !found->is_null()) {
    tool.parameters = &*found;
  }
  if (const auto found = function.find("strict"); found != function.end()) {
    tool.strict = *found == true;
  }
  return tool;
}

}  // namespace

std::vector<ToolDefinition> ReadTools(const Json& tools) {
  std::vector<ToolDefinition> read;
  if (!tools.is_array()) return read;
  for (size_t i = 0; i < tools.size(); ++i) read.push_back(ReadTool(tools[i], i));
  return read;
}

}  // namespace tidepool::service
