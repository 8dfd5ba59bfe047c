#include "service/tools/arguments_object.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/json_watch.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kEscapeBytes = 6;  // size of \u and four digits
// Chat templates process values recursively. So arguments that are nested deeper stay text.
constexpr int kMaxDepth = 64;

// Reads the beginning of a JSON text, and finds how it can be completed.
class JsonCompleter {
 public:
  explicit JsonCompleter(absl::string_view text) : text_(text) {}

  // Returns the completed text, or "" if the text is not the beginning of a JSON text. The result
  // may still be invalid JSON.
  std::string Complete() {
    while (Step()) {
    }
    return cut_ ? absl::StrCat(text_.substr(0, kept_), in_string_ ? "\"" : "", closers_) : "";
  }

 private:
  enum class Next : uint8_t { kValue, kFirstValue, kKey, kFirstKey, kColon, kComma };

  // Reads one token. Returns false at the end of the text, where it sets cut_, and after an error.
  bool Step() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    cut_ = at_ >= text_.size();
    if (cut_) return false;
    const char c = text_[at_];
    const bool first = next_ == Next::kFirstValue || next_ == Next::kFirstKey;
    if ((first || next_ == Next::kComma) && !open_.empty() && c == open_.back()) {
      open_.pop_back();
      return TakeByte(Next::kComma);
    }
    switch (next_) {
      case Next::kValue:
      case Next::kFirstValue:
        return ReadValue(c);
      case Next::kKey:
      case Next::kFirstKey:
        return c == '"' && ReadString(Next::kColon);
      case Next::kColon:
        if (c != ':') return false;
        ++at_;
        next_ = Next::kValue;
        return true;
      case Next::kComma:
        // Nothing may follow the whole value.
        if (open_.empty() || c != ',') return false;
        ++at_;
        next_ = open_.back() == '}' ? Next::kKey : Next::kValue;
        return true;
    }
    return false;
  }

  // Reads one byte. If the text ends after this byte, it can be completed.
  bool TakeByte(Next next) {
    ++at_;
    next_ = next;
    closers_.assign(open_.rbegin(), open_.rend());
    kept_ = at_;
    in_string_ = false;
    return true;
  }

  bool ReadValue(char c) {
    if (c == '{' || c == '[') {
      if (open_.size() >= kMaxDepth) return false;
      open_.push_back(c == '{' ? '}' : ']');
      return TakeByte(c == '{' ? Next::kFirstKey : Next::kFirstValue);
    }
    if (c == '"') return ReadString(Next::kComma);
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordByte(text_[at_])) ++at_;
    absl::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return false;
    next_ = Next::kComma;
    if (at_ == text_.size()) {
      // The text may have ended within a number or a word. Remove the unfinished end of a number.
      // Leave out an unfinished word.
      while (!word.empty() && absl::StrContains("+-.eE", word.back()) && IsNumber(word)) {
        word.remove_suffix(1);
      }
      if (!IsNumber(word) && word != "true" && word != "false" && word != "null") return true;
    }
    kept_ = begin + word.size();
    in_string_ = false;
    return true;
  }

  static bool IsWordByte(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
  }
  static bool IsNumber(absl::string_view word) {
    return !word.empty() &&
           (word[0] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(word[0])));
  }

  // Returns the size of the escape or byte at at_, or 0 if the text ends within it.
  size_t CharacterBytes() const {
    if (text_[at_] != '\\') return 1;
    const absl::string_view rest = text_.substr(at_);
    if (rest.size() < 2) return 0;
    if (rest[1] != 'u') return 2;
    if (rest.size() < kEscapeBytes) return 0;
    // The first half of a surrogate pair, \ud800 to \udbff, needs the second half.
    const bool half = absl::ascii_tolower(static_cast<unsigned char>(rest[2])) == 'd' &&
                      absl::StrContains("89abAB", rest[3]);
    if (!half) return kEscapeBytes;
    return rest.size() < 2 * kEscapeBytes ? 0 : 2 * kEscapeBytes;
  }

  // Reads a string. If the text ends within a value, the value can be completed, but a key cannot.
  bool ReadString(Next next) {
    const bool value = next == Next::kComma;
    ++at_;
    if (value) kept_ = at_, in_string_ = true;
    while (at_ < text_.size() && text_[at_] != '"') {
      const size_t bytes = CharacterBytes();
      if (bytes == 0) at_ = text_.size();
      at_ += bytes;
      if (value && bytes > 0) kept_ = at_;
    }
    if (at_ >= text_.size()) return true;  // the next step finds the end
    ++at_;
    if (value) kept_ = at_, in_string_ = false;
    next_ = next;
    return true;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  Next next_ = Next::kValue;
  std::string open_;  // brackets that close the open lists and objects, the innermost last
  bool cut_ = false;
  // The completed text: the first kept_ bytes, the end of a string, and the closers.
  size_t kept_ = 0;
  bool in_string_ = false;
  std::string closers_;
};

// Returns null if the text is not a JSON object, or is over the limits.
Json ParseObject(const std::string& text) {
  base::JsonWatch<Json> watch({.max_depth = kMaxDepth, .max_values = int64_t{1} << 20});
  Json json = Json::parse(text, watch.callback(), /*allow_exceptions=*/false);
  return watch.fault().empty() && json.is_object() ? json : Json();
}

}  // namespace

Json ArgumentsObject(absl::string_view text) {
  if (absl::StripAsciiWhitespace(text).empty()) return Json::object();
  if (Json whole = ParseObject(std::string(text)); whole.is_object()) return whole;
  if (Json completed = ParseObject(JsonCompleter(text).Complete()); completed.is_object()) {
    return completed;
  }
  Json wrapped = Json::object();
  wrapped["arguments"] = std::string(text);
  return wrapped;
}

}  // namespace tidepool::service
