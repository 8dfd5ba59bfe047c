// ToolSyntaxOf: how a model writes calls of tools, told by its chat template's text.
#ifndef TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_
#define TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `source` is the template; empty: there is none.
v1::ToolSyntax ToolSyntaxOf(absl::string_view source);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_TOOL_SYNTAX_H_
