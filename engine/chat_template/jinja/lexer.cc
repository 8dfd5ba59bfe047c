#include "engine/chat_template/jinja/lexer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

constexpr absl::string_view kBlank = " \t\n\r\v\f";

bool IsNameStart(char c) { return absl::ascii_isalpha(c) || c == '_'; }
bool IsNamePart(char c) { return absl::ascii_isalnum(c) || c == '_'; }

std::string NormalizeNewlines(absl::string_view source) {
  std::string text = absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
  if (absl::EndsWith(text, "\n")) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : text_(NormalizeNewlines(source)), rest_(text_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (!rest_.empty()) RETURN_IF_ERROR(NextTag());
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // A tag can begin and end with a sign. "-" removes all blanks on that side of the tag, and "+"
  // keeps them.
  static bool IsSign(char c) { return c == '-' || c == '+'; }

  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  void Skip(size_t size) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + size, '\n'));
    if (size > 0) at_line_start_ = rest_[size - 1] == '\n';
    rest_.remove_prefix(size);
  }

  void SkipBlanks() { Skip(std::min(rest_.find_first_not_of(kBlank), rest_.size())); }

  // Reads the text before the next tag, and the tag itself.
  absl::Status NextTag() {
    size_t begin = 0;
    while (true) {
      begin = rest_.find('{', begin);
      if (begin == absl::string_view::npos || begin + 1 == rest_.size()) {
        AddData(rest_);
        Skip(rest_.size());
        return absl::OkStatus();
      }
      if (absl::StrContains("{%#", rest_[begin + 1])) break;
      ++begin;
    }
    const char kind = rest_[begin + 1];
    const char sign = begin + 2 < rest_.size() && IsSign(rest_[begin + 2]) ? rest_[begin + 2] : 0;
    AddData(DataBefore(begin, kind, sign));
    Skip(begin + 2 + (sign == 0 ? 0 : 1));
    if (kind == '#') return SkipComment();
    if (kind == '%' && IsRaw()) return ReadRaw();
    Add(kind == '%' ? Token::Kind::kBlockBegin : Token::Kind::kPrintBegin, "");
    return ReadTag(kind == '%' ? '%' : '}');
  }

  void AddData(absl::string_view data) {
    if (!data.empty()) Add(Token::Kind::kData, std::string(data));
  }

  // Returns the text before the tag at `end`, without the blanks that the tag removes.
  absl::string_view DataBefore(size_t end, char kind, char sign) const {
    const absl::string_view data = rest_.substr(0, end);
    if (sign == '-') return data.substr(0, data.find_last_not_of(kBlank) + 1);
    if (sign == '+' || kind == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
    const bool starts_line = line > 0 || at_line_start_;
    const bool blank = data.find_first_not_of(kBlank, line) == absl::string_view::npos;
    return starts_line && blank ? data.substr(0, line) : data;
  }

  // Skips the closing mark of a tag. Its sign was already read. If `trims` is set, also skips a
  // newline after the tag.
  void CloseTag(size_t size, char sign, bool trims) {
    Skip(size);
    if (sign == '-') {
      SkipBlanks();
    } else if (trims && sign != '+' && absl::StartsWith(rest_, "\n")) {
      Skip(1);
    }
  }

  absl::Status SkipComment() {
    const size_t end = rest_.find("#}");
    if (end == absl::string_view::npos) return InvalidAt(line_, "a comment '{#' has no '#}'");
    const char sign = end > 0 && IsSign(rest_[end - 1]) ? rest_[end - 1] : 0;
    CloseTag(end + 2, sign, /*trims=*/true);
    return absl::OkStatus();
  }

  // Returns the size of "%}", "-%}" or "+%}" at the current position, or 0 if there is none.
  size_t ClosingSize(char mark, char* sign) const {
    const std::string close = {mark, '}'};
    *sign = !rest_.empty() && IsSign(rest_[0]) ? rest_[0] : 0;
    // "+}}" does not close a tag, because "+" is allowed only in block tags.
    if (*sign == '+' && mark == '}') *sign = 0;
    const size_t skip = *sign == 0 ? 0 : 1;
    return absl::StartsWith(rest_.substr(skip), close) ? skip + 2 : 0;
  }

  // If the body of the tag is only `name`, returns its size, including the closing mark. Otherwise
  // returns 0.
  size_t MatchBareTag(absl::string_view body, absl::string_view name, char* sign) const {
    size_t at = std::min(body.find_first_not_of(kBlank), body.size());
    if (!absl::StartsWith(body.substr(at), name)) return 0;
    at = std::min(body.find_first_not_of(kBlank, at + name.size()), body.size());
    *sign = at < body.size() && IsSign(body[at]) ? body[at] : 0;
    if (*sign != 0) ++at;
    return absl::StartsWith(body.substr(at), "%}") ? at + 2 : 0;
  }

  bool IsRaw() const {
    char sign = 0;
    return MatchBareTag(rest_, "raw", &sign) != 0;
  }

  absl::Status ReadRaw() {
    const int begin_line = line_;
    char sign = 0;
    const size_t head = MatchBareTag(rest_, "raw", &sign);
    CloseTag(head, sign, /*trims=*/false);
    for (size_t at = rest_.find("{%"); at != absl::string_view::npos;
         at = rest_.find("{%", at + 2)) {
      const size_t signs = at + 2 < rest_.size() && IsSign(rest_[at + 2]) ? 1 : 0;
      char end_sign = 0;
      const size_t size = MatchBareTag(rest_.substr(at + 2 + signs), "endraw", &end_sign);
      if (size == 0) continue;
      AddData(DataBefore(at, '%', signs == 0 ? 0 : rest_[at + 2]));
      CloseTag(at + 2 + signs + size, end_sign, /*trims=*/true);
      return absl::OkStatus();
    }
    return InvalidAt(begin_line, "a raw block has no '{% endraw %}'");
  }

  // Reads the tokens of a tag up to its closing mark. `mark` is the first character of the closing
  // mark: '%' or '}'.
  absl::Status ReadTag(char mark) {
    const int begin_line = line_;
    std::string open;  // the brackets that are open; inside of brackets, "}}" is two closing braces
    while (true) {
      SkipBlanks();
      if (rest_.empty()) {
        return InvalidAt(begin_line,
                         absl::StrCat("a tag '{", mark == '%' ? "%" : "{", "' is not closed"));
      }
      char sign = 0;
      const size_t close = open.empty() ? ClosingSize(mark, &sign) : 0;
      if (close > 0) {
        Add(mark == '%' ? Token::Kind::kBlockEnd : Token::Kind::kPrintEnd, "");
        CloseTag(close, sign, /*trims=*/mark == '%');
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(ReadToken());
      if (tokens_.back().kind == Token::Kind::kOperator) RETURN_IF_ERROR(MatchBracket(&open));
    }
  }

  // If the last token is a bracket, updates the list of open brackets.
  absl::Status MatchBracket(std::string* open) const {
    const Token& token = tokens_.back();
    const char bracket = token.text[0];
    if (absl::StrContains("([{", bracket)) open->push_back(bracket);
    if (!absl::StrContains(")]}", bracket)) return absl::OkStatus();
    const char opener = bracket == ')' ? '(' : bracket == ']' ? '[' : '{';
    if (!open->empty() && open->back() == opener) {
      open->pop_back();
      return absl::OkStatus();
    }
    return InvalidAt(token.line, absl::StrCat("'", token.text, "' does not match an open bracket"));
  }

  absl::Status ReadToken() {
    const char first = rest_[0];
    if (first == '"' || first == '\'') return ReadString(first);
    if (absl::ascii_isdigit(first)) {
      ReadNumber();
      return absl::OkStatus();
    }
    if (IsNameStart(first)) {
      const auto end = std::find_if_not(rest_.begin(), rest_.end(), IsNamePart);
      const auto size = static_cast<size_t>(end - rest_.begin());
      if (size > kMaxNameBytes) {
        return InvalidAt(line_, absl::StrCat("a name has ", size, " bytes; the limit is ",
                                             kMaxNameBytes, " bytes"));
      }
      Add(Token::Kind::kName, std::string(rest_.substr(0, size)));
      Skip(size);
      return absl::OkStatus();
    }
    for (const absl::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (absl::StartsWith(rest_, op)) return AddOperator(op);
    }
    if (absl::StrContains("+-*/%~><=.:|,;()[]{}", first)) return AddOperator(rest_.substr(0, 1));
    return InvalidAt(line_, absl::StrCat("unexpected character '",
                                         rest_.substr(0, base::NextUtf8Char(rest_).size), "'"));
  }

  absl::Status AddOperator(absl::string_view op) {
    Add(Token::Kind::kOperator, std::string(op));
    Skip(op.size());
    return absl::OkStatus();
  }

  // Returns the size of a number such as "0x1F", "0o17" or "0b1_01" at the current position, or 0
  // if there is none.
  size_t PrefixedIntegerSize() const {
    if (rest_.size() < 3 || rest_[0] != '0') return 0;
    const char kind = absl::ascii_tolower(rest_[1]);
    const absl::string_view digits = kind == 'x'   ? "0123456789abcdefABCDEF"
                                     : kind == 'o' ? "01234567"
                                     : kind == 'b' ? "01"
                                                   : "";
    size_t size = 2;
    while (size < rest_.size() &&
           (absl::StrContains(digits, rest_[size]) || (rest_[size] == '_' && !digits.empty()))) {
      ++size;
    }
    return size > 2 ? size : 0;
  }

  void ReadNumber() {
    size_t size = 0;
    const auto digits = [this, &size] {
      while (size < rest_.size() && (absl::ascii_isdigit(rest_[size]) || rest_[size] == '_')) {
        ++size;
      }
    };
    const auto digit_at = [this](size_t at) {
      return at < rest_.size() && absl::ascii_isdigit(rest_[at]);
    };
    if (const size_t prefixed = PrefixedIntegerSize(); prefixed > 0) {
      Add(Token::Kind::kInteger, absl::StrReplaceAll(rest_.substr(0, prefixed), {{"_", ""}}));
      Skip(prefixed);
      return;
    }
    digits();
    bool is_float = false;
    // After a dot, a number is an index: "x.0.1" means x[0][1].
    const bool is_index = !tokens_.empty() && tokens_.back().kind == Token::Kind::kOperator &&
                          tokens_.back().text == ".";
    if (!is_index && size < rest_.size() && rest_[size] == '.' && digit_at(size + 1)) {
      is_float = true;
      ++size;
      digits();
    }
    if (size < rest_.size() && absl::ascii_tolower(rest_[size]) == 'e') {
      const size_t sign = size + 1 < rest_.size() && IsSign(rest_[size + 1]) ? 1 : 0;
      if (digit_at(size + 1 + sign)) {
        is_float = true;
        size += 1 + sign;
        digits();
      }
    }
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
        absl::StrReplaceAll(rest_.substr(0, size), {{"_", ""}}));
    Skip(size);
  }

  absl::Status ReadString(char quote) {
    const int begin_line = line_;
    std::string value;
    size_t at = 1;
    while (at < rest_.size() && rest_[at] != quote) {
      if (rest_[at] != '\\') {
        value.push_back(rest_[at++]);
        continue;
      }
      if (at + 1 == rest_.size()) break;
      at += AppendEscape(rest_.substr(at), &value);
    }
    if (at >= rest_.size()) {
      return InvalidAt(begin_line, "a string has no closing quote");
    }
    tokens_.push_back({Token::Kind::kString, std::move(value), begin_line});
    Skip(at + 1);
    return absl::OkStatus();
  }

  // Appends the character that an escape sequence represents, and returns the size of the sequence.
  // `escape` has at least two bytes. Unknown sequences are copied unchanged.
  static size_t AppendEscape(absl::string_view escape, std::string* value) {
    constexpr absl::string_view kLetters = "\\'\"nrtabfv";
    constexpr absl::string_view kMeanings = "\\'\"\n\r\t\a\b\f\v";
    const char letter = escape[1];
    if (letter == '\n') return 2;  // a backslash at the end of a line continues the line
    const size_t known = kLetters.find(letter);
    if (known != absl::string_view::npos) {
      value->push_back(kMeanings[known]);
      return 2;
    }
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    uint32_t point = 0;
    const absl::string_view hex = escape.substr(2, digits);
    const bool is_hex = hex.size() == digits && std::all_of(hex.begin(), hex.end(), [](char c) {
                          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                        });
    if (digits > 0 && is_hex && absl::SimpleHexAtoi(hex, &point) && point < 0x110000 &&
        (point < 0xD800 || point > 0xDFFF)) {
      base::AppendUtf8(point, value);
      return 2 + digits;
    }
    value->push_back('\\');
    value->push_back(letter);
    return 2;
  }

  const std::string text_;
  absl::string_view rest_;
  int line_ = 1;
  bool at_line_start_ = true;  // whether the byte that was skipped last ended a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status InvalidAt(int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("chat template, line ", line, ": ", message));
}

absl::Status UnimplementedAt(int line, absl::string_view message) {
  return absl::UnimplementedError(absl::StrCat("chat template, line ", line, ": ", message));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  RETURN_IF_ERROR(base::CheckUtf8(source, "the chat template"));
  return Lexer(source).Run();
}

}  // namespace tidepool::engine::jinja
