// ToolFormat: how a family of models writes tool calls. The response parser (response_parser.h) and
// the grammar of calls are both made from it.
//
// A response with calls is
//   [reasoning] [content] begin call {separator call} end
// and a call is
//   call_begin NAME name_end ARGUMENTS call_end
// The texts are those that the family's chat template writes. Between markers, models also write
// other white space. So the parser accepts any white space where a text has some, and around each
// call.
#ifndef TIDEPOOL_SERVICE_TOOLS_TOOL_FORMAT_H_
#define TIDEPOOL_SERVICE_TOOLS_TOOL_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// How a format writes the arguments of a call.
enum class ArgumentForm : uint8_t {
  // One JSON object.
  kJson,
  // Parameters, one after the other: key_begin KEY key_end VALUE value_end. A value whose schema
  // has the type string is plain text, without quotes and escapes. Other values are JSON.
  kParameters,
  // Python's keyword arguments: KEY=VALUE, separated by ", ". The values are Python literals.
  kPython,
};

struct ParameterFormat {
  absl::string_view key_begin;
  // Ends the key of a value that is plain text.
  absl::string_view key_end;
  // Ends the key of a value that is JSON, if this differs from key_end. Otherwise empty.
  absl::string_view json_key_end;
  absl::string_view value_end;
};

struct ToolFormat {
  v1::ToolSyntax syntax = v1::OTHER_TOOL_SYNTAX;
  // A text that only calls contain, and with which the first call begins. In free text, the grammar
  // of calls begins after this text. Empty: a call has no marker. Then calls are only at the
  // beginning of the response, after the reasoning.
  absl::string_view trigger;
  // A control token that may precede calls that have no marker. Empty: none.
  absl::string_view optional_marker;
  // The texts around all calls together, and between two calls.
  absl::string_view begin, end;
  absl::string_view separator;
  // The texts of one call.
  absl::string_view call_begin, name_end, call_end;
  // The call is a JSON object: call_begin, name_end and call_end contain its braces and the quotes
  // of its keys. The parser then accepts the members in any order, and more members.
  bool json_object = false;
  // Whether a response can have more than one call.
  bool parallel = true;
  ArgumentForm form = ArgumentForm::kJson;
  ParameterFormat parameter;  // for ArgumentForm::kParameters
};

// Returns the format, or null if the syntax is unspecified or not known to this release. The result
// is never freed.
const ToolFormat* FormatOf(v1::ToolSyntax syntax);

// Returns all formats, one for each known syntax.
std::vector<const ToolFormat*> AllToolFormats();

// The markers of harmony (gpt-oss). A response consists of messages:
//   [<|start|>assistant][ to=RECIPIENT]<|channel|>CHANNEL[ to=RECIPIENT][
//   <|constrain|>json]<|message|>TEXT
// and each ends with one of the three end markers. The prompt ends with "<|start|>assistant".
namespace harmony {
inline constexpr absl::string_view kStart = "<|start|>";
inline constexpr absl::string_view kChannel = "<|channel|>";
inline constexpr absl::string_view kConstrain = "<|constrain|>";
inline constexpr absl::string_view kMessage = "<|message|>";
inline constexpr absl::string_view kEnd = "<|end|>";
inline constexpr absl::string_view kCall = "<|call|>";      // ends the generation, too
inline constexpr absl::string_view kReturn = "<|return|>";  // ends the generation, too
}  // namespace harmony

// Returns the texts in the responses of a model that may be control tokens of its vocabulary:
// markers of calls and of reasoning. The texts are not empty, and each occurs once.
std::vector<std::string> MarkersOf(v1::ToolSyntax syntax, const v1::ReasoningMarkers& reasoning);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TOOL_FORMAT_H_
