#include "service/tools/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "service/tools/text_match.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {
namespace {

using Kind = OutputPiece::Kind;

// A longer text is not a header.
constexpr size_t kMaxHeaderBytes = 512;

// The texts with which a header can begin.
constexpr absl::string_view kHeaderBegins[] = {harmony::kStart, harmony::kChannel,
                                               harmony::kConstrain, harmony::kMessage, "to="};
// The texts that end a message. A model sometimes forgets <|end|>.
constexpr absl::string_view kTextEnds[] = {harmony::kEnd, harmony::kCall, harmony::kReturn,
                                           harmony::kStart, harmony::kChannel};

// Returns the word that follows `mark` in a header, or "".
absl::string_view WordAfter(absl::string_view header, absl::string_view mark) {
  const size_t found = header.find(mark);
  if (found == header.npos) return "";
  header.remove_prefix(found + mark.size());
  header.remove_prefix(SkipSpace(header));
  size_t size = 0;
  while (size < header.size() && header[size] != '<' &&
         !absl::ascii_isspace(static_cast<unsigned char>(header[size]))) {
    ++size;
  }
  return header.substr(0, size);
}

}  // namespace

void HarmonyParser::Feed(absl::string_view text, OutputPieces* out) {
  absl::StrAppend(&held_, text);
  Run(/*last=*/false, out);
}

void HarmonyParser::Finish(OutputPieces* out) { Run(/*last=*/true, out); }

void HarmonyParser::Drop(size_t bytes) {
  held_.erase(0, bytes);
  read_ += static_cast<int64_t>(bytes);
}

void HarmonyParser::Run(bool last, OutputPieces* out) {
  bool more = true;
  while (more && !held_.empty()) {
    switch (part_) {
      case Part::kHeader:
        more = TakeHeader(last, out);
        break;
      case Part::kCallBegin:
        more = TakeCallBegin(last, out);
        break;
      case Part::kText:
        more = TakeText(last, out);
        break;
    }
  }
  // If the response ends after the header of a call, the call has no arguments.
  if (last && part_ == Part::kCallBegin) TakeCallBegin(last, out);
}

bool HarmonyParser::TakeHeader(bool last, OutputPieces* out) {
  const absl::string_view text = held_;
  const absl::string_view rest = text.substr(SkipSpace(text));
  const Match begins = MatchAny(rest, kHeaderBegins).match;
  const bool open = rest.empty() || begins == Match::kPartial;
  if (open && !last) return false;
  // If the response ends within a header, the header is left out only if it begins with a whole
  // control token. Any other text is content.
  const bool text_only =
      open || (last && !absl::StartsWith(rest, "<") && !absl::StrContains(text, harmony::kMessage));
  if (begins == Match::kNo || text_only) {  // text without a header
    kind_ = Kind::kContent;
    part_ = Part::kText;
    return true;
  }
  const size_t message = text.find(harmony::kMessage.data(), 0, harmony::kMessage.size());
  const size_t header =
      message == text.npos ? text.size() - BeginsAtEnd(text, harmony::kMessage) : message;
  const bool broken =
      header > kMaxHeaderBytes ||
      (begins == Match::kYes &&
       std::any_of(std::begin(kTextEnds), std::begin(kTextEnds) + 3, [&](absl::string_view end) {
         return absl::StrContains(text.substr(0, header), end);
       }));
  if (broken) {
    // Emit the first character as content. Then the rest does not begin with a marker, and is read
    // as the text of a message.
    const size_t shown = std::max<size_t>(1, text.size() - rest.size() + 1);
    AddText(Kind::kContent, 0, text.substr(0, shown), out);
    Drop(shown);
    kind_ = Kind::kContent;
    part_ = Part::kText;
    return true;
  }
  if (message == text.npos) {
    if (last) Drop(held_.size());  // the end of the response cuts the header
    return false;
  }
  ReadHeader(text.substr(0, message));
  Drop(message + harmony::kMessage.size());
  if (in_reasoning()) changed_at_ = read_;
  return true;
}

void HarmonyParser::ReadHeader(absl::string_view header) {
  const absl::string_view channel = WordAfter(header, harmony::kChannel);
  absl::string_view recipient = WordAfter(header, "to=");
  part_ = Part::kText;
  kind_ = channel == "analysis" ? Kind::kReasoning : Kind::kContent;
  if (find_calls_ && absl::ConsumePrefix(&recipient, "functions.") && !recipient.empty()) {
    part_ = Part::kCallBegin;
    name_ = std::string(recipient);
  }
}

bool HarmonyParser::TakeCallBegin(bool last, OutputPieces* out) {
  const absl::string_view rest = absl::string_view(held_).substr(SkipSpace(held_));
  const Match ends = rest.empty() ? Match::kPartial : MatchAny(rest, kTextEnds).match;
  if (ends == Match::kPartial && !last) return false;
  part_ = Part::kText;
  const bool empty = ends == Match::kYes || rest.empty();
  if (!empty && rest[0] != '{') {  // arguments begin with '{'
    kind_ = Kind::kContent;
    return true;
  }
  kind_ = Kind::kArguments;
  out->push_back({.kind = Kind::kCall, .call = calls_++, .text = std::move(name_)});
  if (empty) AddText(Kind::kArguments, calls_ - 1, "{}", out);
  Drop(held_.size() - rest.size());
  return true;
}

bool HarmonyParser::TakeText(bool last, OutputPieces* out) {
  const absl::string_view text = held_;
  size_t end = text.npos, length = 0, certain = text.size();
  for (size_t i = text.find('<'); i != text.npos && end == text.npos; i = text.find('<', i + 1)) {
    const Matched matched = MatchAny(text.substr(i), kTextEnds);
    if (matched.match == Match::kPartial) certain = std::min(certain, i);
    if (matched.match != Match::kYes) continue;
    end = i;
    length = matched.length;
  }
  if (end == text.npos && last) certain = text.size();
  const size_t size = std::min(end, certain);
  AddText(kind_, kind_ == Kind::kArguments ? calls_ - 1 : 0, text.substr(0, size), out);
  if (end == text.npos) {
    Drop(size);
    return false;
  }
  // <|start|> and <|channel|> belong to the next header.
  const bool header = absl::StartsWith(text.substr(end), harmony::kStart) ||
                      absl::StartsWith(text.substr(end), harmony::kChannel);
  if (in_reasoning()) changed_at_ = read_ + static_cast<int64_t>(end);
  Drop(header ? end : end + length);
  part_ = Part::kHeader;
  return true;
}

}  // namespace tidepool::service
