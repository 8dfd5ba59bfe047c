#include "service/tools/call_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

// Text that was read is removed from the held text when it has at least this size in bytes.
constexpr size_t kMinRemoved = 4096;

}  // namespace

CallParser::CallParser(const ToolFormat& format, std::shared_ptr<const ToolSchemas> tools)
    : syntax_(SyntaxOf(format)),
      tools_(std::move(tools)),
      state_(syntax_.at_start.empty() ? State::kContent : State::kStart) {
  for (const absl::string_view opening : syntax_.anywhere) {
    if (!absl::StrContains(openings_, opening[0])) openings_ += opening[0];
  }
}

void CallParser::Feed(absl::string_view text, OutputPieces* out) {
  absl::StrAppend(&held_, text);
  Run(out);
}

void CallParser::Finish(OutputPieces* out) {
  end_ = TextEnd::kLast;
  Run(out);
  if (calls_ == 0) AddText(OutputPiece::Kind::kContent, 0, space_, out);
  space_.clear();
}

void CallParser::Run(OutputPieces* out) {
  while (Step(out)) {
    if (at_ < kMinRemoved || at_ < held_.size() / 2) continue;
    held_.erase(0, at_);
    at_ = 0;
  }
  held_.erase(0, at_);
  at_ = 0;
}

bool CallParser::Step(OutputPieces* out) {
  switch (state_) {
    case State::kStart: {
      if (rest().empty()) return false;
      const Match head = TakeHead(CallPlace::kStart, out);
      if (head == Match::kPartial) return false;
      if (head == Match::kNo) {
        state_ = syntax_.anywhere.empty() ? State::kPlain : State::kContent;
      }
      return true;
    }
    case State::kContent:
      return TakeContent(out);
    case State::kPlain:
      EmitContent(rest(), out);
      at_ = held_.size();
      return false;
    case State::kArguments:
      return TakeArguments(out);
    case State::kAfterArguments:
      return TakeCallEnd();
    case State::kAfterCall:
      return TakeNext(out);
  }
  return false;
}

bool CallParser::TakeContent(OutputPieces* out) {
  const absl::string_view text = rest();
  size_t from = 0;
  while (true) {
    const size_t found = std::min(text.find_first_of(openings_, from), text.size());
    const Match opens =
        found == text.size() ? Match::kNo : MatchAny(text.substr(found), syntax_.anywhere).match;
    if (found == text.size() || opens != Match::kNo) {
      EmitContent(text.substr(0, found), out);
      at_ += found;
      if (found == text.size()) return false;
      break;
    }
    from = found + 1;
  }
  const Match head = TakeHead(CallPlace::kAnywhere, out);
  if (head == Match::kPartial) return false;
  if (head == Match::kNo) {  // this text only looks like a call
    EmitContent(rest().substr(0, 1), out);
    ++at_;
  }
  return true;
}

Match CallParser::TakeHead(CallPlace place, OutputPieces* out) {
  const bool last = end_ == TextEnd::kLast;
  if (IsTooEarly()) return Match::kPartial;
  size_t begin = 0;
  if (place == CallPlace::kStart) begin = SkipSpace(rest());
  CallHead head = MatchCallHead(syntax_, place, rest().substr(begin), *tools_);
  if (head.match == Match::kPartial) {
    if (last) return Match::kNo;
    WaitForMore();
    return head.match;
  }
  if (head.match == Match::kNo) return head.match;
  space_.clear();
  out->push_back({.kind = OutputPiece::Kind::kCall, .call = calls_, .text = head.name});
  at_ += begin + head.length;
  call_end_ = 0;
  members_ = 0;
  if (head.arguments.has_value()) {
    AddText(OutputPiece::Kind::kArguments, calls_, *head.arguments, out);
    state_ = State::kAfterArguments;
  } else {
    arguments_ = MakeArgumentReader(syntax_, *tools_, head.name);
    state_ = State::kArguments;
  }
  ++calls_;
  return Match::kYes;
}

bool CallParser::IsTooEarly() {
  if (rest().size() < retry_ && end_ == TextEnd::kOpen) return true;
  retry_ = 0;
  return false;
}

void CallParser::WaitForMore() {
  constexpr size_t kShort = 1024;
  if (rest().size() > kShort) retry_ = rest().size() + rest().size() / 2;
}

bool CallParser::TakeArguments(OutputPieces* out) {
  std::string json;
  size_t consumed = 0;
  const ArgumentReader::State state = arguments_->Read(rest(), end_, &consumed, &json);
  at_ += consumed;
  AddText(OutputPiece::Kind::kArguments, calls_ - 1, json, out);
  if (state == ArgumentReader::State::kMore) return false;
  arguments_.reset();
  state_ = State::kAfterArguments;
  return true;
}

Matched CallParser::MatchMember() const {
  const absl::string_view text = rest();
  size_t at = SkipSpace(text);
  for (const char mark : {',', '"', ':'}) {
    at = SkipSpace(text, at);
    if (at == text.size()) return {Match::kPartial};
    if (text[at] != mark) return {Match::kNo};
    if (mark == '"') {
      const Matched key = MatchJsonValue(text.substr(at));
      if (key.match != Match::kYes) return key;
      at += key.length;
    } else {
      ++at;
    }
  }
  at = SkipSpace(text, at);
  const Matched value = MatchJsonValue(text.substr(at));
  const size_t size = value.match == Match::kYes ? value.length : text.size() - at;
  if (members_ + size > kMaxOtherMembers) return {Match::kNo};
  return {value.match, at + value.length};
}

bool CallParser::TakeCallEnd() {
  if (syntax_.format->json_object && call_end_ == 0) {
    const Matched member = MatchMember();
    if (member.match == Match::kPartial && end_ == TextEnd::kOpen) return false;
    if (member.match == Match::kYes) {
      at_ += member.length;
      members_ += member.length;
      return true;
    }
  }
  const size_t space = SkipSpace(rest());
  const absl::string_view text = rest().substr(space);
  for (; call_end_ < syntax_.call_end.size(); ++call_end_) {
    const Matched end = MatchText(text, syntax_.call_end[call_end_]);
    if (end.match == Match::kNo) continue;
    if (end.match == Match::kPartial && end_ == TextEnd::kOpen) return false;
    // If the response ends within a marker, the beginning of the marker counts as the marker.
    at_ += space + (end.match == Match::kYes ? end.length : text.size());
    ++call_end_;
    return true;
  }
  state_ = State::kAfterCall;
  call_end_ = 0;
  return true;
}

bool CallParser::TakeNext(OutputPieces* out) {
  const Match head = syntax_.after_call.empty() ? Match::kNo : TakeHead(CallPlace::kAfterCall, out);
  if (head == Match::kPartial) return false;
  if (head == Match::kYes) return true;
  const size_t space = SkipSpace(rest());
  const absl::string_view text = rest().substr(space);
  for (; call_end_ < syntax_.section_end.size(); ++call_end_) {
    const Matched end = MatchText(text, syntax_.section_end[call_end_]);
    if (end.match == Match::kNo) continue;
    if (end.match == Match::kPartial && end_ == TextEnd::kOpen) return false;
    at_ += space + (end.match == Match::kYes ? end.length : text.size());
    ++call_end_;
    return true;
  }
  state_ = syntax_.anywhere.empty() ? State::kPlain : State::kContent;
  return true;
}

void CallParser::EmitContent(absl::string_view text, OutputPieces* out) {
  const absl::string_view solid = absl::StripTrailingAsciiWhitespace(text);
  if (!solid.empty()) {
    AddText(OutputPiece::Kind::kContent, 0, space_, out);
    AddText(OutputPiece::Kind::kContent, 0, solid, out);
    space_.clear();
  }
  absl::StrAppend(&space_, text.substr(solid.size()));
}

}  // namespace tidepool::service
