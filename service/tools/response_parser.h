// ResponseParser: separates the text of a response into reasoning, content and tool calls, while it
// streams.
//
//   ResponseParser parser({.syntax = v1::TOOL_CALL_TAGS, .tools = tools});
//   OutputPieces pieces;
//   for (...) parser.Feed(text, &pieces);
//   parser.Finish(&pieces);
#ifndef TIDEPOOL_SERVICE_TOOLS_RESPONSE_PARSER_H_
#define TIDEPOOL_SERVICE_TOOLS_RESPONSE_PARSER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/body_parser.h"
#include "service/tools/output_piece.h"
#include "service/tools/tool_schemas.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct ResponseFormat {
  v1::ToolSyntax syntax = v1::TOOL_SYNTAX_UNSPECIFIED;
  v1::ReasoningMarkers reasoning;  // empty: the model has no reasoning
  bool in_reasoning = false;       // the prompt ends inside of the reasoning
  // The tools of the request. Null: the response has no calls.
  std::shared_ptr<const ToolSchemas> tools;
};

// Thread-compatible. The text contains the names of the control tokens that are markers
// (MarkersOf). The result of joining the pieces does not depend on how the text is split. Text that
// may become a marker is held back until it is certain. No text is an error: text that is not a
// call is content. Only the markers and the white space around them are left out.
class ResponseParser {
 public:
  explicit ResponseParser(const ResponseFormat& format);

  // Adds text. Appends the pieces that later text cannot change.
  void Feed(absl::string_view text, OutputPieces* out);
  // Appends the text that was held back. Do not call Feed after Finish.
  void Finish(OutputPieces* out);

  // Whether the text that comes next is reasoning, as far as is known.
  bool in_reasoning() const { return part_ == Part::kReasoning || body_->in_reasoning(); }
  // Returns the position in the text, in bytes, at which reasoning last began or ended. The markers
  // are not part of the reasoning. 0: the prompt ends inside of the reasoning, or no reasoning has
  // begun.
  int64_t reasoning_changed_at() const {
    return std::max(changed_at_, body_->reasoning_changed_at());
  }

 private:
  enum class Part : uint8_t {
    kBegin,      // only white space so far
    kReasoning,  // inside of the reasoning
    kBody,       // after the reasoning
  };

  void Run(bool last, OutputPieces* out);
  // Removes the first `bytes` bytes of the held text.
  void Drop(size_t bytes);
  // Each of these functions does one step. It returns false if it needs more text.
  bool TakeBegin(bool last, OutputPieces* out);
  bool TakeReasoning(bool last, OutputPieces* out);

  const std::string begin_, end_;  // the markers of reasoning
  const std::unique_ptr<BodyParser> body_;
  Part part_;
  bool after_reasoning_ = false;  // there was reasoning before
  // The white space at the beginning of the reasoning, and a repeated marker, were read.
  bool reasoning_begun_ = false;
  std::string held_;
  int64_t read_ = 0;        // number of bytes before the held text
  int64_t changed_at_ = 0;  // the value that reasoning_changed_at returns
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_RESPONSE_PARSER_H_
