#include "service/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/status_macros.h"
#include "service/cli/console.h"
#include "service/cli/files.h"

namespace tidepool::service {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostBytesShown = 80;  // of the file in a message

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }
bool IsWordChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}
// Of numbers, and of dates, which are told by their characters.
bool IsTokenChar(char c) { return IsWordChar(c) || c == '+' || c == '.' || c == ':'; }

// For one line of a message: keys may hold line ends.
std::string Quoted(absl::string_view text) {
  absl::string_view shown = text.substr(0, kMostBytesShown);
  shown = shown.substr(0, engine::ValidUtf8Prefix(shown));
  return OneLine(absl::StrCat("\"", shown, shown.size() < text.size() ? "..." : "", "\""));
}

// Moves "digit, digit, _digit ..." from the front of `text` to `out`; false without a digit where
// one belongs.
bool TakeDigits(absl::string_view* text, bool (*is_digit)(char), std::string* out) {
  size_t at = 0;
  while (at < text->size() && is_digit((*text)[at])) {
    out->push_back((*text)[at++]);
    const bool more = at + 1 < text->size() && (*text)[at] == '_' && is_digit((*text)[at + 1]);
    if (more) ++at;
  }
  text->remove_prefix(at);
  return at > 0;
}

// "0xff", "0o17", "0b11" in decimal.
std::optional<std::string> PrefixedInteger(absl::string_view text) {
  const char prefix = text[1];
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
  text.remove_prefix(2);
  std::string digits;
  if (!TakeDigits(&text, IsHexDigit, &digits) || !text.empty()) return std::nullopt;
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const std::from_chars_result read = std::from_chars(digits.data(), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return absl::StrCat(value);
}

// A number of TOML as one of a command line; null: it is none, or an integer past 64 bits.
std::optional<std::string> NumberText(absl::string_view text) {
  for (const absl::string_view prefix : {"0x", "0o", "0b"}) {
    if (absl::StartsWith(text, prefix)) return PrefixedInteger(text);
  }
  std::string number;
  const auto take_sign = [&] {
    if (absl::ConsumePrefix(&text, "-")) {
      number.push_back('-');
    } else {
      absl::ConsumePrefix(&text, "+");
    }
  };
  take_sign();
  if (text == "inf" || text == "nan") return absl::StrCat(number, text);
  const size_t begin = number.size();
  if (!TakeDigits(&text, IsDigit, &number)) return std::nullopt;
  if (number[begin] == '0' && number.size() > begin + 1) return std::nullopt;
  if (text.empty()) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(number, &value)) return std::nullopt;
    return absl::StrCat(value);
  }
  if (absl::ConsumePrefix(&text, ".")) {
    number.push_back('.');
    if (!TakeDigits(&text, IsDigit, &number)) return std::nullopt;
  }
  if (absl::ConsumePrefix(&text, "e") || absl::ConsumePrefix(&text, "E")) {
    number.push_back('e');
    take_sign();
    if (!TakeDigits(&text, IsDigit, &number)) return std::nullopt;
  }
  return text.empty() ? std::optional(number) : std::nullopt;
}

// Thread-compatible. Reads one text from its front to its end; every loop moves on in it, and
// nothing recurses.
class Reader {
 public:
  // `text` has only "\n" as line ends, is UTF-8, and outlives the reader.
  Reader(absl::string_view path, absl::string_view text) : path_(path), text_(text) {}

  absl::StatusOr<std::vector<ConfigFileEntry>> Read();

  // INVALID_ARGUMENT at where the reader is.
  absl::Status Error(absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": line ", Line(), ": ", message));
  }
  absl::Status NotToml(absl::string_view message) {
    return Error(absl::StrCat("not TOML: ", message));
  }

  // What stands here, for a message.
  std::string Found() const;
  bool AtEnd() const { return at_ == text_.size(); }
  // Requires an offset that is not behind the reader.
  void MoveTo(size_t offset) { at_ = offset; }

 private:
  absl::StatusOr<ConfigFileEntry> ReadEntry();
  absl::StatusOr<std::string> ReadKey();
  absl::StatusOr<std::vector<std::string>> ReadArray();
  absl::StatusOr<std::string> ReadScalar();
  absl::StatusOr<std::string> ReadString();
  // Behind the opening `delimiter`, one quote or three.
  absl::StatusOr<std::string> ReadStringBody(absl::string_view delimiter);
  // Behind a backslash.
  absl::Status ReadEscape(bool is_long, std::string* out);
  absl::Status ReadCodePoint(int digits, std::string* out);

  int Line();
  absl::string_view Rest() const { return text_.substr(at_); }
  bool Take(absl::string_view prefix) {
    if (!absl::StartsWith(Rest(), prefix)) return false;
    at_ += prefix.size();
    return true;
  }
  absl::string_view TakeWhile(bool (*belongs)(char)) {
    const size_t begin = at_;
    while (!AtEnd() && belongs(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void SkipBlanks() {
    TakeWhile([](char c) { return c == ' ' || c == '\t'; });
  }
  void SkipComment() {
    if (Take("#")) at_ = std::min(text_.find('\n', at_), text_.size());
  }
  void SkipLines() {
    do {
      SkipBlanks();
      SkipComment();
    } while (Take("\n"));
  }

  const absl::string_view path_;
  const absl::string_view text_;
  size_t at_ = 0;
  // The line of offset counted_, from which Line() goes on.
  int line_ = 1;
  size_t counted_ = 0;
};

int Reader::Line() {
  line_ += static_cast<int>(std::count(text_.begin() + counted_, text_.begin() + at_, '\n'));
  counted_ = at_;
  return line_;
}

std::string Reader::Found() const {
  if (AtEnd()) return "the end of the file";
  if (text_[at_] == '\n') return "the end of the line";
  return Quoted(text_.substr(at_, engine::NextUtf8Char(Rest()).size));
}

absl::StatusOr<std::vector<ConfigFileEntry>> Reader::Read() {
  std::vector<ConfigFileEntry> entries;
  std::map<std::string, int> lines;
  for (SkipLines(); !AtEnd(); SkipLines()) {
    ASSIGN_OR_RETURN(ConfigFileEntry entry, ReadEntry());
    const auto [first, is_new] = lines.emplace(entry.key, entry.line);
    if (!is_new) {
      return NotToml(
          absl::StrCat(Quoted(entry.key), " stands in line ", first->second, " already"));
    }
    SkipBlanks();
    SkipComment();
    if (!AtEnd() && text_[at_] != '\n') {
      return NotToml(absl::StrCat(Found(), " behind the value of ", Quoted(entry.key)));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<ConfigFileEntry> Reader::ReadEntry() {
  ConfigFileEntry entry;
  entry.line = Line();
  ASSIGN_OR_RETURN(entry.key, ReadKey());
  SkipBlanks();
  if (!AtEnd() && text_[at_] == '.') {
    return Error(absl::StrCat(Quoted(entry.key), ": keys are flags' names, without sections"));
  }
  if (!Take("=")) {
    return NotToml(absl::StrCat("expected = behind ", Quoted(entry.key), ", found ", Found()));
  }
  SkipBlanks();
  if (Take("[")) {
    ASSIGN_OR_RETURN(entry.values, ReadArray());
  } else {
    ASSIGN_OR_RETURN(entry.values.emplace_back(), ReadScalar());
  }
  return entry;
}

absl::StatusOr<std::string> Reader::ReadKey() {
  if (!AtEnd() && text_[at_] == '[') {
    const absl::string_view line = Rest().substr(0, Rest().find('\n'));
    return Error(absl::StrCat(Quoted(line), ": keys are flags' names, without sections"));
  }
  if (!AtEnd() && (text_[at_] == '"' || text_[at_] == '\'')) {
    if (absl::StartsWith(Rest(), "\"\"\"") || absl::StartsWith(Rest(), "'''")) {
      return NotToml("a key stands between one pair of quotes");
    }
    return ReadString();
  }
  const absl::string_view key = TakeWhile(IsWordChar);
  if (key.empty()) return NotToml(absl::StrCat("expected a flag's name, found ", Found()));
  return std::string(key);
}

absl::StatusOr<std::vector<std::string>> Reader::ReadArray() {
  std::vector<std::string> values;
  for (SkipLines(); !Take("]"); SkipLines()) {
    if (!values.empty() && !Take(",")) {
      return NotToml(absl::StrCat("expected , or ] in a list, found ", Found()));
    }
    SkipLines();
    if (!values.empty() && Take("]")) break;
    if (!AtEnd() && text_[at_] == '[') return Error("no flag takes lists in a list");
    ASSIGN_OR_RETURN(values.emplace_back(), ReadScalar());
  }
  return values;
}

absl::StatusOr<std::string> Reader::ReadScalar() {
  if (!AtEnd() && (text_[at_] == '"' || text_[at_] == '\'')) return ReadString();
  if (!AtEnd() && text_[at_] == '{') {
    return Error("no flag takes a table; keys are flags' names, without sections");
  }
  const absl::string_view token = TakeWhile(IsTokenChar);
  if (token.empty()) return NotToml(absl::StrCat("expected a value, found ", Found()));
  if (token == "true" || token == "false") return std::string(token);
  std::optional<std::string> number = NumberText(token);
  if (number.has_value()) return *std::move(number);
  return Error(
      absl::StrCat(Quoted(token), " is no number, true or false; anything else stands in quotes"));
}

absl::StatusOr<std::string> Reader::ReadString() {
  const absl::string_view quote = text_.substr(at_, 1);
  const absl::string_view three = quote == "\"" ? "\"\"\"" : "'''";
  if (!Take(three)) {
    Take(quote);
    return ReadStringBody(quote);
  }
  Take("\n");
  ASSIGN_OR_RETURN(std::string text, ReadStringBody(three));
  // Up to two more quotes belong to the string.
  for (int i = 0; i < 2 && Take(quote); ++i) absl::StrAppend(&text, quote);
  return text;
}

absl::StatusOr<std::string> Reader::ReadStringBody(absl::string_view delimiter) {
  const bool is_long = delimiter.size() > 1;
  const bool has_escapes = delimiter[0] == '"';
  const int first_line = Line();
  std::string text;
  while (!Take(delimiter)) {
    if (AtEnd() || (!is_long && text_[at_] == '\n')) {
      return NotToml(absl::StrCat("the text that begins in line ", first_line,
                                  " lacks its closing ", delimiter));
    }
    if (has_escapes && Take("\\")) {
      RETURN_IF_ERROR(ReadEscape(is_long, &text));
    } else {
      text.push_back(text_[at_++]);
    }
  }
  return text;
}

absl::Status Reader::ReadEscape(bool is_long, std::string* out) {
  constexpr absl::string_view kLetters = "btnfr\"\\";
  constexpr absl::string_view kCharacters = "\b\t\n\f\r\"\\";
  if (const size_t i = AtEnd() ? absl::string_view::npos : kLetters.find(text_[at_]);
      i != absl::string_view::npos) {
    out->push_back(kCharacters[i]);
    ++at_;
    return absl::OkStatus();
  }
  if (Take("u")) return ReadCodePoint(4, out);
  if (Take("U")) return ReadCodePoint(8, out);
  const size_t begin = at_;
  SkipBlanks();
  if (is_long && Take("\n")) {  // The line goes on with the next character that is no blank.
    TakeWhile([](char c) { return c == ' ' || c == '\t' || c == '\n'; });
    return absl::OkStatus();
  }
  at_ = begin;
  return NotToml(absl::StrCat(Found(),
                              " behind a backslash; a text in ' ' has backslashes as they "
                              "are"));
}

absl::Status Reader::ReadCodePoint(int digits, std::string* out) {
  const absl::string_view hex = text_.substr(at_, digits);
  uint32_t value = 0;
  const bool ok = hex.size() == static_cast<size_t>(digits) &&
                  std::all_of(hex.begin(), hex.end(), IsHexDigit) &&
                  absl::SimpleHexAtoi(hex, &value);
  const bool is_surrogate = value >= 0xD800 && value < 0xE000;
  // An argument of a command line ends at a zero: no flag could take one there either.
  if (!ok || value == 0 || is_surrogate || value > 0x10FFFF) {
    return NotToml(absl::StrCat("a backslash and ", digits == 4 ? "u" : "U", " need ", digits,
                                " hexadecimal digits of a character, not of U+0000"));
  }
  engine::AppendUtf8(static_cast<char32_t>(value), out);
  at_ += digits;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConfigFileEntry>> ParseConfigFile(const std::string& path,
                                                             absl::string_view content) {
  absl::ConsumePrefix(&content, "\xEF\xBB\xBF");  // a byte order mark
  const std::string text = absl::StrReplaceAll(content, {{"\r\n", "\n"}});
  Reader reader(path, text);
  const size_t valid = engine::ValidUtf8Prefix(text);
  if (valid < text.size()) {
    reader.MoveTo(valid);
    return reader.NotToml("bytes that are not UTF-8");
  }
  const auto control = std::find_if(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_iscntrl(c) && c != '\t' && c != '\n';
  });
  if (control != text.end()) {
    reader.MoveTo(control - text.begin());
    return reader.NotToml("a control character");
  }
  return reader.Read();
}

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMostBytes));
  return ParseConfigFile(path, content);
}

}  // namespace tidepool::service
