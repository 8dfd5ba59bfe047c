#include "service/tools/argument_reader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "service/tools/parameter_reader.h"
#include "service/tools/text_match.h"
#include "service/tools/value_json.h"

namespace tidepool::service {
namespace {

// Reads a JSON object and passes it on verbatim. A marker outside of strings ends the object, even
// if the object is not complete.
class JsonReader final : public ArgumentReader {
 public:
  explicit JsonReader(const CallSyntax& syntax) {
    for (const auto* list : {&syntax.call_end, &syntax.section_end, &syntax.anywhere}) {
      for (const absl::string_view text : *list) {
        const absl::string_view marker = text.substr(0, text.find(' '));
        if (marker.size() > 1) stops_.push_back(marker);
      }
    }
  }

  State Read(absl::string_view text, TextEnd end, size_t* consumed, std::string* json) override {
    size_t at = 0;
    State state = State::kMore;
    for (; at < text.size() && state == State::kMore; ++at) {
      if (!quoted_) {
        const Match stop = MatchAny(text.substr(at), stops_).match;
        if (stop == Match::kPartial && end == TextEnd::kOpen) break;
        if (stop == Match::kYes) {
          state = State::kBroken;
          break;
        }
      }
      if (Take(text[at])) state = State::kDone;
    }
    *consumed = at;
    absl::StrAppend(json, text.substr(0, at));
    return state;
  }

 private:
  // Returns whether the object ends with this byte.
  bool Take(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (quoted_) {
      escaped_ = c == '\\';
      quoted_ = c != '"';
    } else if (c == '"') {
      quoted_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      return --depth_ == 0;
    }
    return false;
  }

  std::vector<absl::string_view> stops_;
  int64_t depth_ = 0;
  bool quoted_ = false;
  bool escaped_ = false;
};

// Reads Python's keyword arguments.
class PythonArguments final : public ArgumentReader {
 public:
  State Read(absl::string_view text, TextEnd end, size_t* consumed, std::string* json) override {
    *consumed = 0;
    while (true) {
      const absl::string_view rest = text.substr(*consumed);
      size_t used = 0;
      const std::optional<State> state =
          key_.empty() ? ReadKey(rest, &used, json) : ReadValue(rest, &used, json);
      *consumed += used;
      if (!state.has_value()) continue;
      if (*state == State::kMore && end == TextEnd::kLast) {
        absl::StrAppend(json, text.substr(*consumed));
        *consumed = text.size();
      }
      return *state;
    }
  }

 private:
  // Each of these functions returns nullopt if it has read something and the next part can be read.
  std::optional<State> ReadKey(absl::string_view text, size_t* used, std::string* json) {
    size_t at = SkipSpace(text);
    if (at < text.size() && text[at] == ')') {
      *used = at;
      *json += any_ ? "}" : "{}";
      return State::kDone;
    }
    if (any_ && !comma_ && at < text.size()) {
      if (text[at] != ',') return State::kBroken;
      comma_ = true;
      *used = at + 1;
      return std::nullopt;
    }
    const size_t begin = at;
    while (at < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[at])) ||
                                text[at] == '_' || (text[at] & 0x80) != 0)) {
      ++at;
    }
    const size_t equals = SkipSpace(text, at);
    const bool too_long = at - begin > kMaxKeyBytes;
    if (equals == text.size() && !too_long) return State::kMore;
    if (at == begin || too_long || text[equals] != '=') return State::kBroken;
    key_ = std::string(text.substr(begin, at - begin));
    comma_ = false;
    *used = equals + 1;
    return std::nullopt;
  }

  std::optional<State> ReadValue(absl::string_view text, size_t* used, std::string* json) {
    for (; scanned_ < text.size(); ++scanned_) {
      if (!EndsAt(text[scanned_])) continue;
      const std::optional<std::string> value = PythonToJson(text.substr(0, scanned_));
      if (!value.has_value()) return State::kBroken;
      absl::StrAppend(json, any_ ? ", " : "{", JsonString(key_), ": ", *value);
      any_ = true;
      key_.clear();
      *used = std::exchange(scanned_, 0);
      return std::nullopt;
    }
    return State::kMore;
  }

  // Returns whether the value ends before this byte.
  bool EndsAt(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (quote_ != '\0') {
      escaped_ = c == '\\';
      if (c == quote_) quote_ = '\0';
    } else if (c == '"' || c == '\'') {
      quote_ = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth_;
    } else if (depth_ > 0 && (c == ')' || c == ']' || c == '}')) {
      --depth_;
    } else {
      return depth_ == 0 && (c == ',' || c == ')');
    }
    return false;
  }

  bool any_ = false;    // a parameter was read
  bool comma_ = false;  // the comma after the last parameter was read
  std::string key_;     // key of the value that comes next
  size_t scanned_ = 0;  // number of bytes that were searched for the value's end
  int64_t depth_ = 0;
  char quote_ = '\0';
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<ArgumentReader> MakeArgumentReader(const CallSyntax& syntax,
                                                   const ToolSchemas& tools,
                                                   absl::string_view tool) {
  switch (syntax.format->form) {
    case ArgumentForm::kParameters:
      return std::make_unique<ParameterReader>(syntax, tools, std::string(tool));
    case ArgumentForm::kPython:
      return std::make_unique<PythonArguments>();
    case ArgumentForm::kJson:
      break;
  }
  return std::make_unique<JsonReader>(syntax);
}

}  // namespace tidepool::service
