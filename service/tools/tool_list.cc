#include "service/tools/tool_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"
#include "service/tools/tool_definitions.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Tool> ToolsIn(absl::string_view tools_json) {
  std::vector<Tool> tools;
  const Json list = Json::parse(tools_json, nullptr, /*allow_exceptions=*/false);
  for (ToolDefinition& read : ReadTools(list)) {
    Tool tool = {.index = read.index, .name = std::move(read.name), .strict = read.strict};
    if (read.parameters != nullptr) tool.parameters = read.parameters->dump();
    tools.push_back(std::move(tool));
  }
  return tools;
}

absl::Status CheckNames(const std::vector<Tool>& tools) {
  absl::flat_hash_set<std::string> names;
  for (const Tool& tool : tools) {
    const std::string place = absl::StrCat("tools[", tool.index, "].function.name");
    if (tool.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(place, " is missing or empty"));
    }
    if (!names.insert(tool.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, " is ", base::Quoted(tool.name), ", the name of another tool, too; rename one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool CallRules::restricts() const {
  return required || all_strict ||
         std::any_of(tools.begin(), tools.end(), [](const Tool& tool) { return tool.strict; });
}

absl::StatusOr<CallRules> RulesOf(absl::string_view tools_json, const v1::ToolChoice& choice,
                                  bool parallel) {
  CallRules rules;
  rules.required = choice.mode() == v1::ToolChoice::REQUIRED;
  if (choice.mode() == v1::ToolChoice::NONE) {
    if (choice.names().empty()) return rules;
    return absl::InvalidArgumentError("tool_choice is none, but it has names; remove one of them");
  }
  if (tools_json.empty() && choice.names().empty() && !rules.required) return rules;
  const std::vector<Tool> tools = ToolsIn(tools_json);
  rules.parallel = parallel;
  rules.all_strict = rules.required || !choice.names().empty() || (!parallel && !tools.empty());
  const auto named = [&choice](const Tool& tool) {
    const auto& names = choice.names();
    return names.empty() || std::find(names.begin(), names.end(), tool.name) != names.end();
  };
  for (const std::string& name : choice.names()) {
    const auto has_name = [&name](const Tool& tool) { return tool.name == name; };
    if (std::any_of(tools.begin(), tools.end(), has_name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("tool_choice names ", base::Quoted(name),
                                                   ", which is not the name of a tool in tools"));
  }
  if (rules.required && tools.empty()) {
    return absl::InvalidArgumentError(
        "tool_choice requires a call, but the request has no tools; add tools");
  }
  std::copy_if(tools.begin(), tools.end(), std::back_inserter(rules.tools), named);
  if (rules.restricts()) RETURN_IF_ERROR(CheckNames(tools));
  return rules;
}

}  // namespace tidepool::service
