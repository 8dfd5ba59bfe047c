// CallParser: separates the content of a response from its tool calls.
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_PARSER_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/argument_reader.h"
#include "service/tools/body_parser.h"
#include "service/tools/call_head.h"
#include "service/tools/call_syntax.h"
#include "service/tools/output_piece.h"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {

// Thread-compatible. For all formats except harmony.
class CallParser final : public BodyParser {
 public:
  CallParser(const ToolFormat& format, std::shared_ptr<const ToolSchemas> tools);

  void Feed(absl::string_view text, OutputPieces* out) override;
  void Finish(OutputPieces* out) override;

 private:
  enum class State : uint8_t {
    kStart,    // only white space so far
    kContent,  // looks for the beginning of a call
    kPlain,    // the rest is content
    kArguments,
    kAfterArguments,  // reads the texts that end the call
    kAfterCall,       // reads the next call, or the texts that end all calls
  };

  absl::string_view rest() const { return absl::string_view(held_).substr(at_); }
  void Run(OutputPieces* out);
  // Does one step. Returns false if it needs more text.
  bool Step(OutputPieces* out);
  bool TakeContent(OutputPieces* out);
  bool TakeArguments(OutputPieces* out);
  bool TakeCallEnd();
  bool TakeNext(OutputPieces* out);
  // Begins a call if the held text begins with the head of a call. Otherwise returns kNo or
  // kPartial.
  Match TakeHead(CallPlace place, OutputPieces* out);
  // These two functions avoid that a long incomplete head is read again for each piece of text.
  // After WaitForMore, IsTooEarly returns true until the held text has grown by half.
  bool IsTooEarly();
  void WaitForMore();
  // Reads `, "key": value` after the arguments of a call that is a JSON object.
  Matched MatchMember() const;
  void EmitContent(absl::string_view text, OutputPieces* out);

  const CallSyntax syntax_;
  const std::shared_ptr<const ToolSchemas> tools_;
  std::string openings_;  // the first bytes of the texts with which a call begins

  State state_;
  TextEnd end_ = TextEnd::kOpen;
  std::string held_;  // text, of which the first at_ bytes are read
  size_t at_ = 0;
  size_t retry_ = 0;  // the size of the held text at which to read it again
  std::unique_ptr<ArgumentReader> arguments_;
  int32_t calls_ = 0;
  size_t members_ = 0;   // bytes of other members after the arguments of this call
  size_t call_end_ = 0;  // how many of the texts that end a call were read or are missing
  std::string space_;    // white space after the content; dropped if a call follows
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_PARSER_H_
