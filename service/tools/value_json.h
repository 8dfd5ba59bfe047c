// Converts the values of arguments to JSON.
#ifndef TIDEPOOL_SERVICE_TOOLS_VALUE_JSON_H_
#define TIDEPOOL_SERVICE_TOOLS_VALUE_JSON_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {

// Appends `text` with the escapes of a JSON string, without the quotes. Bytes that are not ASCII
// are copied.
void AppendJsonEscaped(absl::string_view text, std::string* json);

// Returns `text` as a JSON string.
std::string JsonString(absl::string_view text);

// Returns the value as JSON. If the value has none of the types, it becomes a string. Python's
// True, False and None are accepted, and Python's literals for arrays and objects.
std::string TypedJson(absl::string_view value, const ValueTypes& types);

// Returns a Python literal as JSON, or nullopt if it is not a literal that JSON can express.
std::optional<std::string> PythonToJson(absl::string_view literal);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_VALUE_JSON_H_
