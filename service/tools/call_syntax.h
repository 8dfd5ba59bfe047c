// CallSyntax: the texts that the parser accepts around calls. The parser accepts more than
// ToolFormat describes, because models do not always follow their format.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

// White space in these texts matches any white space, or none (see MatchText).
struct CallSyntax {
  const ToolFormat* format = nullptr;
  // Texts before a call's name, or before the JSON object with the name. `anywhere` is accepted at
  // any place of the content, `at_start` only at its beginning, and `after_call` only after another
  // call.
  std::vector<absl::string_view> anywhere;
  std::vector<absl::string_view> at_start;
  std::vector<absl::string_view> after_call;
  // Texts that end a call's name, if the call is not a JSON object.
  std::vector<absl::string_view> name_end;
  // Texts after the arguments, in this order. Each may be missing.
  std::vector<absl::string_view> call_end;
  // Texts after the last call, in this order. Each may be missing.
  std::vector<absl::string_view> section_end;
};

CallSyntax SyntaxOf(const ToolFormat& format);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_SYNTAX_H_
