// MatchCallHead: recognises the beginning of a call, up to its arguments.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_HEAD_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/call_syntax.h"
#include "service/tools/text_match.h"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {

// A call that is a JSON object can have members that are neither its name nor its arguments, such
// as an id. The parser drops them. If their values have more than this number of bytes in total,
// the text counts as content and not as a call, so that it is not lost.
inline constexpr size_t kMaxOtherMembers = 256;

// Where the head of a call is.
enum class CallPlace : uint8_t { kAnywhere, kStart, kAfterCall };

struct CallHead {
  Match match = Match::kNo;
  size_t length = 0;  // number of bytes before the arguments
  std::string name;
  // Set if the head contains the arguments. Then `length` includes them.
  std::optional<std::string> arguments;
};

// Returns the head of the call at the beginning of `text`. The head matches only if later text
// cannot change the name and the beginning of the arguments. If the call has no marker, its name
// must be in `tools`.
CallHead MatchCallHead(const CallSyntax& syntax, CallPlace place, absl::string_view text,
                       const ToolSchemas& tools);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_HEAD_H_
