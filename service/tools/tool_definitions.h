// ReadTools: the only reader of Chat.tools_json. The prompt's rules, the grammar of calls and the
// parser of responses all use it.
#ifndef TIDEPOOL_SERVICE_TOOLS_TOOL_DEFINITIONS_H_
#define TIDEPOOL_SERVICE_TOOLS_TOOL_DEFINITIONS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tidepool::service {

struct ToolDefinition {
  size_t index = 0;  // index in the list
  std::string name;  // empty: the tool has no name
  // A JSON schema, owned by the list. Null: the tool has no schema.
  const nlohmann::ordered_json* parameters = nullptr;
  bool strict = false;
};

// Returns an entry for each element of the list. An element is {"type": "function", "function":
// {...}}, or only the function, which some clients of the gRPC interface send. If `tools` is not an
// array, returns an empty vector. The result must not outlive `tools`.
std::vector<ToolDefinition> ReadTools(const nlohmann::ordered_json& tools);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TOOL_DEFINITIONS_H_
