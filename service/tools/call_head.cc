#include "service/tools/call_head.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

// A longer text is not the name of a tool. This limits the text that is held back.
constexpr size_t kMaxNameBytes = 256;

CallHead PartialHead() { return {.match = Match::kPartial}; }

// Returns the text of a JSON string, or nullopt if it is not valid.
std::optional<std::string> Unquote(absl::string_view json) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// Reads the members of a JSON object until its name and its arguments are known.
class JsonHead {
 public:
  explicit JsonHead(absl::string_view text) : text_(text) {}

  CallHead Read() {
    if (text_.empty()) return PartialHead();
    if (text_[0] != '{') return {};
    at_ = 1;
    while (true) {
      if (const Match member = ReadMember(); member != Match::kYes) return {.match = member};
      if (done_) return std::move(head_);
      at_ = SkipSpace(text_, at_);
      if (at_ == text_.size()) return PartialHead();
      if (text_[at_] == '}') return EndOfObject();
      if (text_[at_++] != ',') return {};
    }
  }

 private:
  // Reads `"key": value`. Sets done_ if the arguments begin here and the name is known.
  Match ReadMember() {
    at_ = SkipSpace(text_, at_);
    if (at_ == text_.size()) return Match::kPartial;
    if (text_[at_] != '"') return Match::kNo;
    const Matched key = MatchJsonValue(text_.substr(at_));
    if (key.match != Match::kYes) return TooLong(at_) ? Match::kNo : Match::kPartial;
    const absl::string_view name = text_.substr(at_ + 1, key.length - 2);
    at_ = SkipSpace(text_, at_ + key.length);
    if (at_ == text_.size()) return Match::kPartial;
    if (text_[at_++] != ':') return Match::kNo;
    at_ = SkipSpace(text_, at_);
    if (at_ == text_.size()) return Match::kPartial;
    if (name == "name" || name == "tool_name" || (name == "function" && text_[at_] == '"')) {
      return ReadName();
    }
    if (name == "arguments" || name == "parameters") return ReadArguments();
    const size_t begin = at_;
    const Match other = SkipValue(nullptr);
    // Other members are not part of the parsed call and would be lost. So a text with long ones
    // (more than kMaxOtherMembers bytes) does not count as a call.
    skipped_ += at_ - begin;
    const bool too_long = skipped_ > kMaxOtherMembers ||
                          (other == Match::kPartial && text_.size() - begin > kMaxOtherMembers);
    return too_long ? Match::kNo : other;
  }

  bool TooLong(size_t from) const { return text_.size() - from > kMaxNameBytes; }

  Match SkipValue(absl::string_view* value) {
    const Matched matched = MatchJsonValue(text_.substr(at_));
    if (matched.match != Match::kYes) return matched.match;
    if (value != nullptr) *value = text_.substr(at_, matched.length);
    at_ += matched.length;
    return Match::kYes;
  }

  Match ReadName() {
    if (text_[at_] != '"') return Match::kNo;
    absl::string_view value;
    const size_t begin = at_;
    if (const Match match = SkipValue(&value); match != Match::kYes) {
      return TooLong(begin) ? Match::kNo : match;
    }
    std::optional<std::string> name = Unquote(value);
    if (!name.has_value() || name->empty() || name->size() > kMaxNameBytes) return Match::kNo;
    head_.name = *std::move(name);
    if (head_.arguments.has_value()) Finish();
    return Match::kYes;
  }

  Match ReadArguments() {
    const char first = text_[at_];
    if (first == '{' && !head_.name.empty()) {
      Finish();
      return Match::kYes;
    }
    absl::string_view value;
    if (const Match match = SkipValue(&value); match != Match::kYes) return match;
    if (first == '{') {
      head_.arguments = std::string(value);
    } else if (first == '"') {  // the arguments are the text of a JSON object
      head_.arguments = Unquote(value);
      if (!head_.arguments.has_value()) return Match::kNo;
    } else if (value == "null") {
      head_.arguments = "{}";
    } else {
      return Match::kNo;
    }
    if (!head_.name.empty()) Finish();
    return Match::kYes;
  }

  CallHead EndOfObject() {
    if (head_.name.empty()) return {};
    head_.arguments = "{}";
    Finish();
    return std::move(head_);
  }

  void Finish() {
    done_ = true;
    head_.match = Match::kYes;
    head_.length = at_;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  CallHead head_;
  size_t skipped_ = 0;  // bytes of other members
  bool done_ = false;
};

bool IsNameByte(char c) {
  return !absl::ascii_isspace(static_cast<unsigned char>(c)) &&
         static_cast<unsigned char>(c) >= 0x20 && !absl::StrContains("<>[](){}\"'`,;=", c);
}

// Returns whether the arguments may begin here.
Match BeginOfArguments(const CallSyntax& syntax, absl::string_view text) {
  text.remove_prefix(SkipSpace(text));
  if (text.empty()) return Match::kPartial;
  const Match end = syntax.call_end.empty() ? Match::kNo : MatchAny(text, syntax.call_end).match;
  if (end == Match::kYes) return end;
  Match begin = Match::kNo;
  switch (syntax.format->form) {
    case ArgumentForm::kJson:
      begin = text[0] == '{' ? Match::kYes : Match::kNo;
      break;
    case ArgumentForm::kParameters:
      begin = MatchText(text, syntax.format->parameter.key_begin).match;
      break;
    case ArgumentForm::kPython: {
      size_t size = 0;
      while (size < text.size() && IsNameByte(text[size])) ++size;
      const size_t next = SkipSpace(text, size);
      begin = size == 0 || size > kMaxNameBytes ? Match::kNo
              : next == text.size()             ? Match::kPartial
              : text[next] == '='               ? Match::kYes
                                                : Match::kNo;
      break;
    }
  }
  return std::max(begin, end);
}

// Mistral writes an id between the name and the arguments: [CALL_ID]abcdefghi[ARGS].
Matched MatchNameEnd(const CallSyntax& syntax, absl::string_view text) {
  const Matched end = MatchAny(text, syntax.name_end);
  if (end.match != Match::kYes || !absl::StartsWith(text, "[CALL_ID]")) return end;
  size_t at = end.length;
  while (at < text.size() && IsNameByte(text[at])) ++at;
  if (at - end.length > kMaxNameBytes) return {Match::kNo};
  const Matched args = MatchText(text.substr(at), "[ARGS]");
  return {args.match, at + args.length};
}

// Reads a name that is not in a JSON object.
CallHead PlainHead(const CallSyntax& syntax, absl::string_view text) {
  size_t at = 0;
  while (at < text.size() && at <= kMaxNameBytes && IsNameByte(text[at])) ++at;
  if (at > kMaxNameBytes) return {};
  const size_t after = SkipSpace(text, at);
  if (after == text.size()) return PartialHead();
  if (at == 0) return {};
  const absl::string_view rest = text.substr(after);
  // If one pattern is empty, it matches at once, although a longer pattern may match later.
  const bool grows = std::any_of(
      syntax.name_end.begin(), syntax.name_end.end(),
      [rest](absl::string_view end) { return MatchText(rest, end).match == Match::kPartial; });
  if (grows) return PartialHead();
  const Matched end = MatchNameEnd(syntax, rest);
  if (end.match != Match::kYes) return {.match = end.match};
  const Match begin = BeginOfArguments(syntax, rest.substr(end.length));
  if (begin != Match::kYes) return {.match = begin};
  CallHead head = {
      .match = Match::kYes, .length = after + end.length, .name = std::string(text.substr(0, at))};
  if (syntax.format->form == ArgumentForm::kJson) {
    head.length += SkipSpace(rest.substr(end.length));
    if (text[head.length] != '{') head.arguments = "{}";
  }
  return head;
}

}  // namespace

CallHead MatchCallHead(const CallSyntax& syntax, CallPlace place, absl::string_view text,
                       const ToolSchemas& tools) {
  const std::vector<absl::string_view>& openings = place == CallPlace::kAnywhere ? syntax.anywhere
                                                   : place == CallPlace::kStart  ? syntax.at_start
                                                                                : syntax.after_call;
  CallHead best;
  for (const absl::string_view opening : openings) {
    const Matched matched = MatchText(text, opening);
    if (matched.match == Match::kPartial) best = PartialHead();
    if (matched.match != Match::kYes) continue;
    const absl::string_view rest = text.substr(matched.length);
    CallHead head = syntax.format->json_object ? JsonHead(rest).Read() : PlainHead(syntax, rest);
    if (head.match == Match::kPartial) best = PartialHead();
    if (head.match != Match::kYes) continue;
    const bool has_marker = place == CallPlace::kAnywhere ||
                            (place == CallPlace::kAfterCall && !syntax.anywhere.empty());
    if (!has_marker && !tools.Has(head.name)) continue;
    head.length += matched.length;
    return head;
  }
  return best;
}

}  // namespace tidepool::service
