// ToolSyntaxOf: finds out from the chat template how a model writes tool calls.
#ifndef TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_
#define TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `source` is the text of the template, or empty if the model has no template.
v1::ToolSyntax ToolSyntaxOf(absl::string_view source);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_
