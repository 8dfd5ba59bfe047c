// ToolSchemas: the names of a request's tools, and the types of their parameters.
#ifndef TIDEPOOL_SERVICE_TOOLS_TOOL_SCHEMAS_H_
#define TIDEPOOL_SERVICE_TOOLS_TOOL_SCHEMAS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// The types that a schema allows for a value.
struct ValueTypes {
  bool string = false;
  bool number = false;
  bool integer = false;  // `number` allows integers, too
  bool boolean = false;
  bool null = false;
  bool array = false;
  bool object = false;

  // Returns whether the value is text. If the schema does not say a type, the value is text, too.
  bool IsText() const { return !number && !integer && !boolean && !null && !array && !object; }
};

// Immutable, so thread-safe.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  // `tools_json` is the JSON text of GenerateRequest.chat.tools_json. Tools without a name are left
  // out.
  explicit ToolSchemas(absl::string_view tools_json);

  bool empty() const { return tools_.empty(); }
  bool Has(absl::string_view name) const { return tools_.find(name) != tools_.end(); }
  // Returns the types of a parameter. If the tool or the parameter is not known, returns no types.
  ValueTypes TypesOf(absl::string_view tool, absl::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, ValueTypes, std::less<>>;

  std::map<std::string, Parameters, std::less<>> tools_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TOOL_SCHEMAS_H_
