#include "service/http/tool_calls.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "service/http/json.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kOpen = "<tool_call>";
constexpr absl::string_view kClose = "</tool_call>";

// Returns the length of the longest suffix of `text` that is a proper prefix of `word`.
size_t BeginsAtEnd(absl::string_view text, absl::string_view word) {
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (absl::EndsWith(text, word.substr(0, n))) return n;
  }
  return 0;
}

// Parses a call: {"name": ..., "arguments" or "parameters": ...}.
std::optional<ToolCall> CallOf(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  ToolCall call = {.name = name->get<std::string>(), .arguments = "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    const auto value = json.find(key);
    if (value == json.end()) continue;
    call.arguments = value->is_string() ? value->get<std::string>() : DumpJson(*value);
    break;
  }
  return call;
}

// Returns the length of the JSON object or array at the beginning of `text`, or 0 if it is
// incomplete.
size_t JsonLength(absl::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return 0;
}

// Returns the marker before a call. Some models write it as a control token, which is part of the
// text here.
absl::string_view MarkOf(v1::ToolSyntax syntax) {
  return syntax == v1::MISTRAL_LIST ? "[TOOL_CALLS]" : "<|python_tag|>";
}

// Parses calls in Llama's format: JSON objects separated by ';'. Returns an empty list if `text` is
// something else.
std::vector<ToolCall> ObjectCalls(absl::string_view text) {
  std::vector<ToolCall> calls;
  while (true) {
    const size_t length = absl::StartsWith(text, "{") ? JsonLength(text) : 0;
    if (length == 0) return {};
    const absl::StatusOr<Json> json = ParseJsonText(text.substr(0, length));
    std::optional<ToolCall> call = json.ok() ? CallOf(*json) : std::nullopt;
    if (!call.has_value()) return {};
    calls.push_back(*std::move(call));
    text = absl::StripLeadingAsciiWhitespace(text.substr(length));
    if (text.empty()) return calls;
    if (!absl::ConsumePrefix(&text, ";")) return {};
    text = absl::StripLeadingAsciiWhitespace(text);
  }
}

std::vector<ToolCall> ListCalls(absl::string_view text) {
  const absl::StatusOr<Json> json = ParseJsonText(text);
  if (!json.ok() || !json->is_array()) return {};
  std::vector<ToolCall> calls;
  for (const Json& item : *json) {
    std::optional<ToolCall> call = CallOf(item);
    if (!call.has_value()) return {};
    calls.push_back(*std::move(call));
  }
  return calls;
}

}  // namespace

void ToolCallParser::EmitContent(absl::string_view text, Output* out) {
  const absl::string_view solid = absl::StripTrailingAsciiWhitespace(text);
  if (!solid.empty()) {
    absl::StrAppend(&out->content, space_, solid);
    space_.clear();
  }
  absl::StrAppend(&space_, text.substr(solid.size()));
}

bool ToolCallParser::TakeTagged(Output* out) {
  const size_t from = std::max(kOpen.size(), scanned_);
  const size_t close = held_.find(kClose.data(), from, kClose.size());
  if (close == std::string::npos) {
    scanned_ = held_.size() - std::min(held_.size(), kClose.size() - 1);
    return false;
  }
  scanned_ = 0;
  const absl::string_view inner =
      absl::string_view(held_).substr(kOpen.size(), close - kOpen.size());
  const absl::StatusOr<Json> json = ParseJsonText(inner);
  std::optional<ToolCall> call = json.ok() ? CallOf(*json) : std::nullopt;
  const size_t end = close + kClose.size();
  if (call.has_value()) {
    space_.clear();
    called_ = true;
    out->calls.push_back(*std::move(call));
  } else {
    EmitContent(held_.substr(0, end), out);
  }
  held_.erase(0, end);
  return true;
}

void ToolCallParser::FeedTags(Output* out) {
  while (!held_.empty()) {
    const size_t open = held_.find(kOpen.data(), 0, kOpen.size());
    const size_t certain =
        open == std::string::npos ? held_.size() - BeginsAtEnd(held_, kOpen) : open;
    EmitContent(absl::string_view(held_).substr(0, certain), out);
    held_.erase(0, certain);
    if (open == std::string::npos || !TakeTagged(out)) return;
  }
}

void ToolCallParser::FeedWhole(Output* out) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
  const absl::string_view mark = MarkOf(syntax_);
  const absl::string_view begin = syntax_ == v1::MISTRAL_LIST ? "[" : "{";
  const bool may_be_call =
      absl::StartsWith(mark, text.substr(0, mark.size())) || absl::StartsWith(text, begin);
  if (may_be_call) return;
  plain_ = true;
  out->content = std::move(held_);
  held_.clear();
}

ToolCallParser::Output ToolCallParser::Feed(absl::string_view text) {
  Output out;
  const bool tags = syntax_ == v1::TOOL_CALL_TAGS;
  const bool whole = syntax_ == v1::LLAMA3_JSON || syntax_ == v1::MISTRAL_LIST;
  if (plain_ || !(tags || whole)) {
    out.content = std::string(text);
    return out;
  }
  absl::StrAppend(&held_, text);
  tags ? FeedTags(&out) : FeedWhole(&out);
  return out;
}

ToolCallParser::Output ToolCallParser::Finish() {
  Output out;
  if (syntax_ == v1::LLAMA3_JSON || syntax_ == v1::MISTRAL_LIST) {
    absl::string_view text = absl::StripAsciiWhitespace(held_);
    absl::ConsumePrefix(&text, MarkOf(syntax_));
    text = absl::StripLeadingAsciiWhitespace(text);
    out.calls = syntax_ == v1::MISTRAL_LIST ? ListCalls(text) : ObjectCalls(text);
    if (!out.calls.empty()) held_.clear();
  }
  if (called_ && held_.empty()) space_.clear();
  if (out.calls.empty()) absl::StrAppend(&out.content, space_, held_);
  held_.clear();
  space_.clear();
  return out;
}

}  // namespace tidepool::service
