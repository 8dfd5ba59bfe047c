// ToolCallParser: finds the tool calls in a response while it streams. Tool calls are written in
// the model's syntax (tidepool.v1.ToolSyntax).
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

// Thread-compatible. The result does not depend on how the text is split into pieces. Text that is
// not a complete call is returned as content, except white space around calls.
class ToolCallParser {
 public:
  struct Output {
    std::string content;
    std::vector<ToolCall> calls;
  };

  explicit ToolCallParser(v1::ToolSyntax syntax) : syntax_(syntax) {}

  // Adds text. Returns the content and the calls that later text cannot change any more.
  Output Feed(absl::string_view text);
  // Returns the remaining content and calls. Do not call Feed after it.
  Output Finish();

 private:
  void FeedTags(Output* out);
  // Removes one call with its tags from the beginning of held_. Returns false if the call is
  // incomplete.
  bool TakeTagged(Output* out);
  void FeedWhole(Output* out);
  void EmitContent(absl::string_view text, Output* out);

  const v1::ToolSyntax syntax_;
  std::string held_;     // text that may be part of a call
  std::string space_;    // white space after the content; dropped if a call follows
  bool called_ = false;  // a call was found before
  size_t scanned_ = 0;   // how much of held_ was already searched for the closing tag
  bool plain_ = false;   // the whole response is content, without calls
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TOOL_CALLS_H_
