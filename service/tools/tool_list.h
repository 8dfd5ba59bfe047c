// ToolList: the tools of a request, and which of them a response may or must call.
#ifndef TIDEPOOL_SERVICE_TOOLS_TOOL_LIST_H_
#define TIDEPOOL_SERVICE_TOOLS_TOOL_LIST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct Tool {
  size_t index = 0;        // index in the request
  std::string name;        // empty: the tool has no name
  std::string parameters;  // a JSON schema; empty: none
  bool strict = false;
};

// The rules for the calls of a response. Plain data.
struct CallRules {
  std::vector<Tool> tools;  // the tools that may be called
  bool required = false;    // at least one call is required
  bool parallel = true;     // more than one call is allowed
  // The arguments of every call must match the tool's schema, even if the tool is not strict.
  bool all_strict = false;

  // Returns whether the response must be constrained.
  bool restricts() const;
};

// Returns the rules of a chat. `tools_json` is Chat.tools_json. Returns INVALID_ARGUMENT if the
// choice names a tool that does not exist, or if it requires a call and there are no tools. If the
// rules restrict the response, each tool must have a different name.
absl::StatusOr<CallRules> RulesOf(absl::string_view tools_json, const v1::ToolChoice& choice,
                                  bool parallel);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TOOL_LIST_H_
