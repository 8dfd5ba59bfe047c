// HarmonyParser: finds the parts of a response in the harmony format (gpt-oss,
// https://github.com/openai/harmony/blob/main/docs/format.md).
#ifndef TIDEPOOL_SERVICE_TOOLS_HARMONY_PARSER_H_
#define TIDEPOOL_SERVICE_TOOLS_HARMONY_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/body_parser.h"
#include "service/tools/output_piece.h"

namespace tidepool::service {

// Thread-compatible. Messages of the channel analysis are reasoning. With Calls::kFind, messages to
// functions.NAME are calls. Everything else is content.
class HarmonyParser final : public BodyParser {
 public:
  enum class Calls : uint8_t { kIgnore, kFind };
  // Where the prompt ends: in the header of a message, or in the text of reasoning.
  enum class Begin : uint8_t { kHeader, kReasoning };

  HarmonyParser(Calls calls, Begin begin)
      : find_calls_(calls == Calls::kFind),
        part_(begin == Begin::kReasoning ? Part::kText : Part::kHeader),
        kind_(begin == Begin::kReasoning ? OutputPiece::Kind::kReasoning
                                         : OutputPiece::Kind::kContent) {}

  void Feed(absl::string_view text, OutputPieces* out) override;
  void Finish(OutputPieces* out) override;
  bool in_reasoning() const override {
    return part_ == Part::kText && kind_ == OutputPiece::Kind::kReasoning;
  }
  int64_t reasoning_changed_at() const override { return changed_at_; }

 private:
  enum class Part : uint8_t {
    kHeader,     // up to <|message|>
    kCallBegin,  // the header of a call was read; its arguments have not begun
    kText,
  };

  void Run(bool last, OutputPieces* out);
  // Removes the first `bytes` bytes of the held text.
  void Drop(size_t bytes);
  // Each of these functions does one step. It returns false if it needs more text.
  bool TakeHeader(bool last, OutputPieces* out);
  bool TakeCallBegin(bool last, OutputPieces* out);
  bool TakeText(bool last, OutputPieces* out);
  // Sets the kind of the message that has this header.
  void ReadHeader(absl::string_view header);

  const bool find_calls_;
  Part part_;
  OutputPiece::Kind kind_;  // kind of the message's text
  std::string held_;
  std::string name_;  // name of the call that begins
  int32_t calls_ = 0;
  int64_t read_ = 0;        // number of bytes before the held text
  int64_t changed_at_ = 0;  // the value that reasoning_changed_at returns
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_HARMONY_PARSER_H_
