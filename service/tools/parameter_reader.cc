#include "service/tools/parameter_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/tools/value_json.h"

namespace tidepool::service {
namespace {

constexpr ValueTypes kAnyJson = {.string = true,
                                 .number = true,
                                 .integer = true,
                                 .boolean = true,
                                 .null = true,
                                 .array = true,
                                 .object = true};

}  // namespace

ParameterReader::ParameterReader(const CallSyntax& syntax, const ToolSchemas& tools,
                                 std::string tool)
    : syntax_(syntax),
      tools_(tools),
      tool_(std::move(tool)),
      key_end_(absl::StripTrailingAsciiWhitespace(syntax.format->parameter.key_end)),
      json_key_end_(absl::StripTrailingAsciiWhitespace(syntax.format->parameter.json_key_end)),
      value_end_(absl::StripAsciiWhitespace(syntax.format->parameter.value_end)),
      own_lines_(absl::StartsWith(syntax.format->parameter.value_end, "\n")) {}

ArgumentReader::State ParameterReader::Read(absl::string_view text, TextEnd end, size_t* consumed,
                                            std::string* json) {
  *consumed = 0;
  while (true) {
    const absl::string_view rest = text.substr(*consumed);
    size_t used = 0;
    const std::optional<State> state = part_ == Part::kBetween ? ReadBetween(rest, end, &used, json)
                                                               : ReadValue(rest, end, &used, json);
    *consumed += used;
    if (state.has_value()) return *state;
  }
}

std::optional<ArgumentReader::State> ParameterReader::ReadBetween(absl::string_view text,
                                                                  TextEnd end, size_t* used,
                                                                  std::string* json) {
  const size_t begin = SkipSpace(text);
  const absl::string_view rest = text.substr(begin);
  const Matched key = MatchText(rest, syntax_.format->parameter.key_begin);
  Match best = key.match;
  if (key.match == Match::kYes) {
    const std::optional<State> state = ReadKey(text, begin + key.length, used, json);
    if (state != State::kMore || end == TextEnd::kOpen) return state;
  } else {
    const Match closed = MatchAny(rest, syntax_.call_end).match;
    if (closed == Match::kYes) {
      *used = begin;
      *json += any_ ? "}" : "{}";
      return State::kDone;
    }
    best = std::max(best, closed);
    if (best == Match::kNo) return State::kBroken;
    if (end == TextEnd::kOpen) {
      *used = begin;
      return State::kMore;
    }
  }
  *used = text.size();  // the response ends within a marker
  return State::kMore;
}

std::optional<ArgumentReader::State> ParameterReader::ReadKey(absl::string_view text, size_t begin,
                                                              size_t* used, std::string* json) {
  const size_t key_end = text.find(key_end_[0], begin);
  if (key_end == text.npos) {
    return text.size() - begin > kMaxKeyBytes ? State::kBroken : State::kMore;
  }
  const std::string key(absl::StripAsciiWhitespace(text.substr(begin, key_end - begin)));
  const absl::string_view rest = text.substr(key_end);
  const Matched plain = MatchText(rest, key_end_);
  const Matched json_end = json_key_end_.empty() ? Matched() : MatchText(rest, json_key_end_);
  // The model may leave out DSML's attribute that says how the value is written.
  const Matched bare = json_key_end_.empty() ? Matched() : MatchText(rest, "\">");
  const Matched& found = json_end.match == Match::kYes ? json_end
                         : bare.match == Match::kYes   ? bare
                                                       : plain;
  if (found.match != Match::kYes) {
    const bool open = plain.match == Match::kPartial || json_end.match == Match::kPartial;
    return open ? State::kMore : State::kBroken;
  }
  if (json_end.match == Match::kYes) {
    types_ = kAnyJson;
  } else if (!json_key_end_.empty() && plain.match == Match::kYes) {
    types_ = {};
  } else {
    types_ = tools_.TypesOf(tool_, key);
  }
  typed_ = !types_.IsText();
  absl::StrAppend(json, any_ ? ", " : "{", JsonString(key), typed_ ? ": " : ": \"");
  any_ = true;
  value_begun_ = false;
  part_ = own_lines_ ? Part::kLineBreak : typed_ ? Part::kTyped : Part::kText;
  *used = key_end + found.length;
  return std::nullopt;
}

std::optional<ArgumentReader::State> ParameterReader::ReadValue(absl::string_view text, TextEnd end,
                                                                size_t* used, std::string* json) {
  if (part_ == Part::kLineBreak) {
    if (text.empty()) return State::kMore;
    *used = text[0] == '\n' ? 1 : 0;
    part_ = typed_ ? Part::kTyped : Part::kText;
    return std::nullopt;
  }
  size_t value_end = 0, after = 0;
  const Match found = FindEnd(text, end, &value_end, &after);
  if (found == Match::kYes) {
    const absl::string_view value = text.substr(0, value_end);
    if (typed_) {
      *json += TypedJson(value, types_);
    } else {
      AppendJsonEscaped(value, json);
      *json += "\"";
    }
    *used = after;
    part_ = Part::kBetween;
    scanned_ = 0;
    return std::nullopt;
  }
  if (end == TextEnd::kLast) {
    typed_ ? absl::StrAppend(json, text) : AppendJsonEscaped(text, json);
    *used = text.size();
  } else if (typed_) {
    scanned_ = after;
  } else {
    AppendJsonEscaped(text.substr(0, value_end), json);
    *used = value_end;
    scanned_ = after - value_end;
    value_begun_ = value_begun_ || value_end > 0;
  }
  return State::kMore;
}

size_t ParameterReader::WithoutLineBreak(absl::string_view text, size_t end) const {
  return own_lines_ && end > 0 && text[end - 1] == '\n' ? end - 1 : end;
}

Match ParameterReader::FindEnd(absl::string_view text, TextEnd end, size_t* value_end,
                               size_t* after) const {
  size_t from = scanned_;
  while (true) {
    const size_t marker = text.find(value_end_.data(), from, value_end_.size());
    if (marker == text.npos) {
      *after = text.size() - BeginsAtEnd(text, value_end_);
      *value_end = WithoutLineBreak(text, *after);
      return Match::kPartial;
    }
    *value_end = WithoutLineBreak(text, marker);
    const size_t marker_end = marker + value_end_.size();
    // On its own line, a repeated end marker is a mistake of the model. Elsewhere, it is text.
    const bool own_line = *value_end < marker || (marker == 0 && !value_begun_);
    const Matched follows = Follows(text.substr(marker_end));
    const bool repeated = follows.length > 0;
    if (follows.match != Match::kNo && (!repeated || own_line)) {
      *after = marker_end + follows.length;
      if (follows.match == Match::kYes || end == TextEnd::kLast) return Match::kYes;
      *after = marker;
      return Match::kPartial;
    }
    from = marker + 1;
  }
}

Matched ParameterReader::Follows(absl::string_view text) const {
  constexpr int kMaxRepeats = 3;
  size_t repeats = 0;
  for (int count = 0;; ++count) {
    const size_t begin = SkipSpace(text, repeats);
    const absl::string_view rest = text.substr(begin);
    const Match next = std::max(MatchText(rest, syntax_.format->parameter.key_begin).match,
                                MatchAny(rest, syntax_.call_end).match);
    if (next == Match::kYes) return {next, repeats};
    const Matched repeat = own_lines_ ? MatchText(rest, value_end_) : Matched();
    if (repeat.match != Match::kYes) return {std::max(next, repeat.match), repeats};
    if (count == kMaxRepeats) return {Match::kNo};
    repeats = begin + repeat.length;
  }
}

}  // namespace tidepool::service
