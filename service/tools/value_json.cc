#include "service/tools/value_json.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"
#include "service/tools/text_match.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

// Parses one Python literal. Thread-compatible.
class PythonReader {
 public:
  explicit PythonReader(absl::string_view text) : text_(text) {}

  // Appends the value's JSON. Returns false if there is none.
  bool ReadAll() {
    SkipBlanks();
    if (!ReadValue(0)) return false;
    SkipBlanks();
    return at_ == text_.size();
  }
  std::string TakeJson() { return std::move(json_); }

 private:
  void SkipBlanks() { at_ = SkipSpace(text_, at_); }
  bool Next(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool ReadValue(int depth) {
    SkipBlanks();
    if (at_ >= text_.size() || depth > kMaxDepth) return false;
    switch (text_[at_]) {
      case '\'':
      case '"':
        return ReadString();
      case '[':
        return ReadList(']', depth);
      case '(':
        return ReadList(')', depth);
      case '{':
        return ReadDict(depth);
      default:
        return ReadWord();
    }
  }

  bool ReadList(char close, int depth) {
    ++at_;
    json_ += "[";
    for (bool first = true; !Next(close); first = false) {
      if (!first) json_ += ", ";
      if (!ReadValue(depth + 1)) return false;
      if (Next(',')) continue;
      if (!Next(close)) return false;
      break;
    }
    json_ += "]";
    return true;
  }

  bool ReadDict(int depth) {
    ++at_;
    json_ += "{";
    for (bool first = true; !Next('}'); first = false) {
      if (!first) json_ += ", ";
      SkipBlanks();
      const bool quoted = at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"');
      if (!quoted || !ReadString() || !Next(':')) return false;
      json_ += ": ";
      if (!ReadValue(depth + 1)) return false;
      if (Next(',')) continue;
      if (!Next('}')) return false;
      break;
    }
    json_ += "}";
    return true;
  }

  bool ReadWord() {
    const size_t begin = at_;
    while (at_ < text_.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  absl::StrContains("+-._", text_.substr(at_, 1)))) {
      ++at_;
    }
    const absl::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True" || word == "true") return json_ += "true", true;
    if (word == "False" || word == "false") return json_ += "false", true;
    if (word == "None" || word == "null") return json_ += "null", true;
    const Json number = Json::parse(word, nullptr, /*allow_exceptions=*/false);
    if (number.is_number()) return absl::StrAppend(&json_, word), true;
    // Python writes numbers in more ways than JSON, such as 1. and .5 and 1_000.
    double value = 0;
    const bool plain = !word.empty() && word.find_first_not_of("0123456789.+-eE") == word.npos;
    if (!plain || !absl::SimpleAtod(word, &value) || !std::isfinite(value)) return false;
    absl::StrAppend(&json_, Json(value).dump());
    return true;
  }

  bool ReadString() {
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        value += text_[at_++];
      } else if (!ReadEscape(&value)) {
        return false;
      }
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    json_ += JsonString(value);
    return true;
  }

  bool ReadHex(size_t digits, uint32_t* code) {
    if (at_ + digits > text_.size() || !absl::SimpleHexAtoi(text_.substr(at_, digits), code)) {
      return false;
    }
    at_ += digits;
    return true;
  }

  bool ReadEscape(std::string* value) {
    if (at_ + 1 >= text_.size()) return false;
    const char c = text_[at_ + 1];
    at_ += 2;
    // Models also write JSON's escape of a slash.
    constexpr absl::string_view kNames = "nrtbfav0\\'\"/";
    constexpr absl::string_view kBytes("\n\r\t\b\f\a\v\0\\'\"/", 12);
    if (const size_t found = kNames.find(c); found != kNames.npos) {
      *value += kBytes[found];
      return true;
    }
    if (c == '\n') return true;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {  // Python keeps the backslash of an unknown escape
      absl::StrAppend(value, "\\", absl::string_view(&c, 1));
      return true;
    }
    uint32_t code = 0;
    if (!ReadHex(digits, &code)) return false;
    // JSON writes a character above U+FFFF as two escapes.
    uint32_t low = 0;
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      if (!ReadHex(4, &low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    base::AppendUtf8(static_cast<char32_t>(code), value);
    return true;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::string json_;
};

bool Allows(const ValueTypes& types, const Json& value) {
  if (value.is_boolean()) return types.boolean;
  if (value.is_null()) return types.null;
  if (value.is_array()) return types.array;
  if (value.is_object()) return types.object;
  if (value.is_number_integer()) return types.integer || types.number;
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return types.number || (types.integer && number == std::floor(number));
  }
  return false;
}

}  // namespace

void AppendJsonEscaped(absl::string_view text, std::string* json) {
  for (const char c : text) {
    switch (c) {
      case '"':
        *json += "\\\"";
        break;
      case '\\':
        *json += "\\\\";
        break;
      case '\n':
        *json += "\\n";
        break;
      case '\r':
        *json += "\\r";
        break;
      case '\t':
        *json += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(json, "\\u%04x", static_cast<unsigned>(c));
        } else {
          *json += c;
        }
    }
  }
}

std::string JsonString(absl::string_view text) {
  std::string json = "\"";
  AppendJsonEscaped(text, &json);
  json += "\"";
  return json;
}

std::string TypedJson(absl::string_view value, const ValueTypes& types) {
  if (types.IsText()) return JsonString(value);
  const absl::string_view word = absl::StripAsciiWhitespace(value);
  if (types.null && word == "None") return "null";
  if (types.boolean && word == "True") return "true";
  if (types.boolean && word == "False") return "false";
  const Json json = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded() && Allows(types, json)) return std::string(word);
  if (json.is_discarded() && (types.array || types.object)) {
    const std::optional<std::string> literal = PythonToJson(word);
    if (literal.has_value() && Allows(types, Json::parse(*literal, nullptr, false))) {
      return *literal;
    }
  }
  return JsonString(value);
}

std::optional<std::string> PythonToJson(absl::string_view literal) {
  PythonReader reader(literal);
  if (!reader.ReadAll()) return std::nullopt;
  return reader.TakeJson();
}

}  // namespace tidepool::service
