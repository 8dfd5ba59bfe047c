#include "service/tools/tool_schemas.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "service/tools/tool_definitions.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

// How deep references and alternatives are followed.
constexpr int kMaxDepth = 8;

void AddName(const Json& name, ValueTypes* types) {
  if (name == "string") types->string = true;
  if (name == "number") types->number = true;
  if (name == "integer") types->integer = true;
  if (name == "boolean") types->boolean = true;
  if (name == "null") types->null = true;
  if (name == "array") types->array = true;
  if (name == "object") types->object = true;
}

void AddTypeOf(const Json& value, ValueTypes* types) {
  types->string |= value.is_string();
  types->number |= value.is_number_float();
  types->integer |= value.is_number_integer();
  types->boolean |= value.is_boolean();
  types->null |= value.is_null();
  types->array |= value.is_array();
  types->object |= value.is_object();
}

const Json* Member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// Returns the schema to which a reference such as "#/$defs/Unit" points. `root` is the schema of
// all parameters.
const Json* Resolve(const Json& root, const std::string& reference) {
  if (!absl::StartsWith(reference, "#")) return nullptr;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    return root.contains(pointer) ? &root[pointer] : nullptr;
  } catch (const Json::exception&) {
    return nullptr;  // not a JSON pointer
  }
}

void AddTypes(const Json& schema, const Json& root, int depth, ValueTypes* types) {
  if (depth > kMaxDepth || !schema.is_object()) return;
  if (const Json* type = Member(schema, "type")) {
    if (!type->is_array()) return AddName(*type, types);
    for (const Json& name : *type) AddName(name, types);
    return;
  }
  if (const Json* reference = Member(schema, "$ref");
      reference != nullptr && reference->is_string()) {
    const Json* target = Resolve(root, reference->get<std::string>());
    if (target != nullptr) AddTypes(*target, root, depth + 1, types);
    return;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* parts = Member(schema, key);
    if (parts == nullptr || !parts->is_array()) continue;
    for (const Json& part : *parts) AddTypes(part, root, depth + 1, types);
  }
  if (const Json* value = Member(schema, "const")) AddTypeOf(*value, types);
  if (const Json* values = Member(schema, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) AddTypeOf(value, types);
  }
  if (Member(schema, "properties") != nullptr) types->object = true;
  if (Member(schema, "items") != nullptr) types->array = true;
}

}  // namespace

ToolSchemas::ToolSchemas(absl::string_view tools_json) {
  const Json tools = Json::parse(tools_json, nullptr, /*allow_exceptions=*/false);
  for (const ToolDefinition& tool : ReadTools(tools)) {
    if (tool.name.empty()) continue;
    Parameters& parameters = tools_[tool.name];
    if (tool.parameters == nullptr) continue;
    const Json& root = *tool.parameters;
    const Json* properties = Member(root, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) {
      AddTypes(schema, root, /*depth=*/0, &parameters[key]);
    }
  }
}

ValueTypes ToolSchemas::TypesOf(absl::string_view tool, absl::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return {};
  const auto types = found->second.find(parameter);
  return types == found->second.end() ? ValueTypes() : types->second;
}

}  // namespace tidepool::service
