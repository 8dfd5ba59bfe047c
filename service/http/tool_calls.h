// ToolCallParser: finds tool calls in a response while it streams, in the model's syntax
// (tidepool.v1.ToolSyntax).
//
//   ToolCallParser parser(v1::TOOL_CALL_TAGS);
//   for (...) { auto out = parser.Feed(text); ... out.content, out.calls ... }
//   auto rest = parser.Finish();
#ifndef TIDEPOOL_SERVICE_HTTP_TOOL_CALLS_H_
#define TIDEPOOL_SERVICE_HTTP_TOOL_CALLS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

// Thread-compatible. The output does not depend on how the text is split. Text that is not a
// complete call is returned as content. Only the space around calls is dropped.
class ToolCallParser {
 public:
  struct Output {
    std::string content;
    std::vector<ToolCall> calls;
  };

  explicit ToolCallParser(v1::ToolSyntax syntax) : syntax_(syntax) {}

  // Returns the content and calls that are certain so far.
  Output Feed(absl::string_view text);
  // Returns the rest. Do not call Feed afterwards.
  Output Finish();

 private:
  void FeedTags(Output* out);
  // Removes one tagged call from the front of held_. Returns false if it is incomplete.
  bool TakeTagged(Output* out);
  void FeedWhole(Output* out);
  void EmitContent(absl::string_view text, Output* out);

  const v1::ToolSyntax syntax_;
  std::string held_;     // text that may belong to a call
  std::string space_;    // space after the content so far; dropped if a call follows
  bool called_ = false;  // a call was found
  size_t scanned_ = 0;   // part of held_ searched for the closing tag
  bool plain_ = false;   // the whole response is content
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TOOL_CALLS_H_
