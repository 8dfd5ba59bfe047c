#include "service/worker/tool_syntax.h"

#include "absl/strings/match.h"

namespace tidepool::service {

v1::ToolSyntax ToolSyntaxOf(absl::string_view source) {
  const auto has = [source](absl::string_view text) { return absl::StrContains(source, text); };
  if (!has("tools")) return v1::TOOL_SYNTAX_UNSPECIFIED;
  // GLM and Qwen-Coder use these tags, too, but with another syntax between them.
  if (has("<tool_call>") && has("</tool_call>") && has("arguments") && !has("<arg_key>") &&
      !has("<function=")) {
    return v1::TOOL_CALL_TAGS;
  }
  if (has("[TOOL_CALLS]") && !has("[ARGS]") && !has("[CALL_ID]")) return v1::MISTRAL_LIST;
  if (has("\"parameters\": dictionary of argument name and its value") || has("<|python_tag|>")) {
    return v1::LLAMA3_JSON;
  }
  return v1::OTHER_TOOL_SYNTAX;
}

}  // namespace tidepool::service
