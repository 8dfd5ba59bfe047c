// CallSyntax: which texts the parser accepts around calls. It is more than what ToolFormat
// describes, because models do not always keep to their format.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

// White space in these texts stands for any white space, also none (see MatchText).
struct CallSyntax {
  const ToolFormat* format = nullptr;
  // The text before the call's name, or before the JSON object with the name: anywhere in the
  // content, only where the content begins, and after a call.
  std::vector<absl::string_view> anywhere;
  std::vector<absl::string_view> at_start;
  std::vector<absl::string_view> after_call;
  // What ends a call's name, if the call is not a JSON object.
  std::vector<absl::string_view> name_end;
  // After the arguments. Each may be missing.
  std::vector<absl::string_view> call_end;
  // After the last call. Each may be missing.
  std::vector<absl::string_view> section_end;
};

CallSyntax SyntaxOf(const ToolFormat& format);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_
