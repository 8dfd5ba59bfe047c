#include "service/tools/response_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "service/tools/call_parser.h"
#include "service/tools/harmony_parser.h"
#include "service/tools/text_match.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {
namespace {

using Kind = OutputPiece::Kind;

// Parses a response without calls.
class PlainParser final : public BodyParser {
 public:
  void Feed(absl::string_view text, OutputPieces* out) override {
    AddText(Kind::kContent, 0, text, out);
  }
  void Finish(OutputPieces*) override {}
};

std::unique_ptr<BodyParser> BodyOf(const ResponseFormat& format) {
  const bool calls = format.tools != nullptr;
  if (format.syntax == v1::HARMONY) {
    return std::make_unique<HarmonyParser>(
        calls ? HarmonyParser::Calls::kFind : HarmonyParser::Calls::kIgnore,
        format.in_reasoning ? HarmonyParser::Begin::kReasoning : HarmonyParser::Begin::kHeader);
  }
  const ToolFormat* const tools = calls ? FormatOf(format.syntax) : nullptr;
  if (tools == nullptr) return std::make_unique<PlainParser>();
  return std::make_unique<CallParser>(*tools, format.tools);
}

}  // namespace

// In harmony, the reasoning is not only at the beginning. So the parser of the body finds it.
ResponseParser::ResponseParser(const ResponseFormat& format)
    : begin_(format.syntax == v1::HARMONY ? "" : format.reasoning.begin()),
      end_(format.syntax == v1::HARMONY ? "" : format.reasoning.end()),
      body_(BodyOf(format)),
      part_(begin_.empty() || end_.empty() ? Part::kBody
            : format.in_reasoning          ? Part::kReasoning
                                           : Part::kBegin) {}

void ResponseParser::Feed(absl::string_view text, OutputPieces* out) {
  if (part_ == Part::kBody) return body_->Feed(text, out);
  absl::StrAppend(&held_, text);
  Run(/*last=*/false, out);
}

void ResponseParser::Finish(OutputPieces* out) {
  Run(/*last=*/true, out);
  body_->Finish(out);
}

void ResponseParser::Run(bool last, OutputPieces* out) {
  while (part_ != Part::kBody) {
    const bool more = part_ == Part::kBegin ? TakeBegin(last, out) : TakeReasoning(last, out);
    if (!more) return;
  }
  if (!held_.empty()) body_->Feed(std::exchange(held_, ""), out);
}

void ResponseParser::Drop(size_t bytes) {
  held_.erase(0, bytes);
  read_ += static_cast<int64_t>(bytes);
}

bool ResponseParser::TakeBegin(bool last, OutputPieces* out) {
  static_cast<void>(out);
  const size_t space = SkipSpace(held_);
  const Matched begin = MatchText(absl::string_view(held_).substr(space), begin_);
  if (begin.match == Match::kPartial && !last) return false;
  if (begin.match == Match::kYes) {
    Drop(space + begin.length);
    changed_at_ = read_;
    part_ = Part::kReasoning;
    reasoning_begun_ = false;
    return true;
  }
  // The white space after the reasoning belongs to its marker.
  if (after_reasoning_) Drop(space);
  part_ = Part::kBody;
  return true;
}

bool ResponseParser::TakeReasoning(bool last, OutputPieces* out) {
  if (!reasoning_begun_) {
    const size_t space = SkipSpace(held_);
    // The prompt contains the marker, but some models write it again.
    const Matched again = MatchText(absl::string_view(held_).substr(space), begin_);
    if (again.match == Match::kPartial && !last) return false;
    reasoning_begun_ = again.match != Match::kYes;
    Drop(space + again.length);
    if (!reasoning_begun_) {
      changed_at_ = read_;
      return true;
    }
  }
  const absl::string_view text = held_;
  const size_t end = text.find(end_);
  absl::string_view certain = text.substr(0, end);
  if (end == text.npos && !last) certain.remove_suffix(BeginsAtEnd(text, end_));
  // The white space before the end marker belongs to the marker.
  if (end != text.npos || !last) {
    const size_t solid = absl::StripTrailingAsciiWhitespace(certain).size();
    certain.remove_suffix(std::min(certain.size() - solid, kMaxSpace));
  }
  AddText(Kind::kReasoning, 0, certain, out);
  if (end == text.npos) {
    Drop(certain.size());
    return false;
  }
  changed_at_ = read_ + static_cast<int64_t>(end);
  Drop(end + end_.size());
  after_reasoning_ = true;
  part_ = Part::kBegin;
  return true;
}

}  // namespace tidepool::service
