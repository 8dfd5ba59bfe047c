// Finds out from a chat template how a model writes tool calls and reasoning.
#ifndef TIDEPOOL_SERVICE_TOOLS_TOOL_SYNTAX_H_
#define TIDEPOOL_SERVICE_TOOLS_TOOL_SYNTAX_H_

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `source` is the text of the template. It is empty if the model has no template; the result is
// then TOOL_SYNTAX_UNSPECIFIED.
v1::ToolSyntax ToolSyntaxOf(absl::string_view source);

// Returns empty markers if the template does not support reasoning.
v1::ReasoningMarkers ReasoningMarkersOf(absl::string_view source);

// Returns whether the response to `prompt` begins inside of the reasoning. `prompt` is the rendered
// conversation.
bool EndsInReasoning(absl::string_view prompt, const v1::ReasoningMarkers& markers);

// Returns whether `message`, which the response continues, ends inside of the reasoning.
bool ContinuesReasoning(absl::string_view message, const v1::ReasoningMarkers& markers);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TOOL_SYNTAX_H_
