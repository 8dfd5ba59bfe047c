// ToolCallParser: finds the calls of tools in an answer, as its model writes them
// (tidepool.v1.ToolSyntax), while the text still comes.
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

  // What is certain so far.
  Output Feed(absl::string_view text);
  // The rest. Nothing may be fed afterwards.
  Output Finish();

 private:
  void FeedTags(Output* out);
  // Takes one tagged call off the front of held_; false: it is not complete.
  bool TakeTagged(Output* out);
  void FeedWhole(Output* out);
  void EmitContent(absl::string_view text, Output* out);

  const v1::ToolSyntax syntax_;
  std::string held_;     // not certain yet
  std::string space_;    // at the end of the content so far: it goes if a call follows
  bool called_ = false;  // a call came
  size_t scanned_ = 0;   // of held_, for the closing tag
  bool plain_ = false;   // the whole response is content
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TOOL_CALLS_H_
