#include "engine/grammar/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/regex_parser.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

using Node = RegexNode;
using Kind = RegexNode::Kind;

constexpr int kMaxGroupDepth = 100;

// A recursive-descent parser. Every Parse function stops after its construct.
class Parser {
 public:
  Parser(absl::string_view pattern, LookAhead ahead) : pattern_(pattern), ahead_(ahead) {}

  absl::StatusOr<RegexSyntax> Run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a pattern of ", pattern_.size(),
                                                     " bytes; the limit is ", kMaxPatternBytes));
    }
    RETURN_IF_ERROR(base::CheckUtf8(pattern_, "the pattern"));
    ASSIGN_OR_RETURN(const int32_t root, ParseOr());
    if (at_ < pattern_.size()) return Error("')' without '('; write \\) for the character");
    return RegexSyntax{std::move(nodes_), root};
  }

 private:
  absl::Status Error(absl::string_view reason) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern ", base::Quoted(pattern_), ", offset ", at_, ": ", reason));
  }

  bool Done() const { return at_ >= pattern_.size(); }
  char Peek() const { return Done() ? '\0' : pattern_[at_]; }
  bool Take(absl::string_view text) {
    if (!absl::StartsWith(pattern_.substr(at_), text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t TakeCharacter() {
    const base::Utf8Char next = base::NextUtf8Char(pattern_.substr(at_));
    at_ += next.size;
    return next.code_point;
  }

  int32_t Add(Node node) {
    for (const int32_t kid : node.kids) {
      node.asserts |= nodes_[kid].asserts;
      node.has_start |= nodes_[kid].has_start;
    }
    nodes_.push_back(std::move(node));
    return static_cast<int32_t>(nodes_.size() - 1);
  }
  int32_t AddSet(CodePointSet set) { return Add({.kind = Kind::kSet, .set = std::move(set)}); }

  absl::StatusOr<int32_t> ParseOr() {
    if (++depth_ > kMaxGroupDepth) return Error("groups are nested deeper than 100 levels");
    std::vector<int32_t> parts;
    do {
      ASSIGN_OR_RETURN(const int32_t part, ParseConcat());
      parts.push_back(part);
    } while (Take("|"));
    --depth_;
    return parts.size() == 1 ? parts[0] : Add({.kind = Kind::kOr, .kids = std::move(parts)});
  }

  absl::StatusOr<int32_t> ParseConcat() {
    std::vector<int32_t> parts;
    while (!Done() && Peek() != '|' && Peek() != ')') {
      ASSIGN_OR_RETURN(const int32_t atom, ParseAtom());
      ASSIGN_OR_RETURN(const int32_t part, ParseQuantifier(atom));
      if (nodes_[part].has_start && !parts.empty()) RETURN_IF_ERROR(CheckSplit(parts));
      parts.push_back(part);
    }
    if (parts.empty()) return Add({});
    return parts.size() == 1 ? parts[0] : Add({.kind = Kind::kConcat, .kids = std::move(parts)});
  }

  // Returns an error if a node before a ^ contains an assertion and is not itself an assertion.
  absl::Status CheckSplit(const std::vector<int32_t>& parts) const {
    for (const int32_t part : parts) {
      const Kind kind = nodes_[part].kind;
      const bool only_asserts = kind == Kind::kStart || kind == Kind::kEnd ||
                                kind == Kind::kAhead || kind == Kind::kNotAhead;
      if (nodes_[part].asserts && !only_asserts) {
        return Error("^ after a group with an assertion is not supported; move it to the start");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> ParseAtom() {
    const char first = Peek();
    if (Take("^")) return Add({.kind = Kind::kStart, .asserts = true, .has_start = true});
    if (Take("$")) return Add({.kind = Kind::kEnd, .asserts = true});
    if (Take(".")) {
      return AddSet(Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    }
    if (first == '(') return ParseGroup();
    if (first == '[') return ParseClass();
    if (first == '\\') return ParseEscape();
    if (first == '*' || first == '+' || first == '?') {
      return Error(absl::StrCat("nothing to repeat before '", std::string(1, first), "'; write \\",
                                std::string(1, first), " for the character"));
    }
    const char32_t c = TakeCharacter();
    return AddSet({{c, c}});
  }

  absl::StatusOr<int32_t> ParseGroup() {
    Kind kind = Kind::kEmpty;
    ++at_;
    if (Take("?")) {
      if (Take("<=") || Take("<!")) return Error("look-behind is not supported");
      if (Take("=")) {
        kind = Kind::kAhead;
      } else if (Take("!")) {
        kind = Kind::kNotAhead;
      } else if (Take("<")) {
        const size_t end = pattern_.find('>', at_);
        if (end == absl::string_view::npos) return Error("the name of a group has no '>'");
        at_ = end + 1;
      } else if (!Take(":")) {
        return Error("unknown kind of group; use (...), (?:...) or (?<name>...)");
      }
    }
    if (kind != Kind::kEmpty && ahead_ == LookAhead::kRefused) {
      return Error("look-ahead is not supported");
    }
    ASSIGN_OR_RETURN(const int32_t inner, ParseOr());
    if (!Take(")")) return Error("a group has no ')'");
    if (kind == Kind::kEmpty) return inner;
    return Add({.kind = kind, .kids = {inner}, .asserts = true});
  }

  absl::StatusOr<int32_t> ParseQuantifier(int32_t atom) {
    int32_t min = 0, max = kNoLimit;
    const size_t begin = at_;
    if (Take("*")) {
    } else if (Take("+")) {
      min = 1;
    } else if (Take("?")) {
      max = 1;
    } else if (Peek() == '{') {
      const std::optional<std::pair<int64_t, int64_t>> counts = ParseCounts();
      if (!counts.has_value()) return atom;
      if (counts->first > counts->second) return Error("the counts of {m,n} are out of order");
      if (counts->first > kMaxRepeats ||
          (counts->second != kNoLimit && counts->second > kMaxRepeats)) {
        return Error(absl::StrCat("a count is greater than ", kMaxRepeats));
      }
      min = static_cast<int32_t>(counts->first);
      max = static_cast<int32_t>(counts->second);
    } else {
      return atom;
    }
    Take("?");
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') {
      return Error("two quantifiers for one expression; use a group");
    }
    if (nodes_[atom].asserts && max > 1) {
      at_ = begin;
      return Error("^, $ and look-ahead inside a repetition are not supported");
    }
    return Add({.kind = Kind::kRepeat, .kids = {atom}, .min = min, .max = max});
  }

  // If the text does not continue with {m}, {m,} or {m,n}, returns nullopt and consumes nothing.
  std::optional<std::pair<int64_t, int64_t>> ParseCounts() {
    size_t at = at_ + 1;
    const auto number = [&]() -> std::optional<int64_t> {
      const size_t begin = at;
      int64_t value = 0;
      for (; at < pattern_.size() && absl::ascii_isdigit(pattern_[at]); ++at) {
        value = std::min<int64_t>(value * 10 + (pattern_[at] - '0'), kNoLimit - 1);
      }
      return at == begin ? std::nullopt : std::optional<int64_t>(value);
    };
    const std::optional<int64_t> low = number();
    if (!low.has_value() || at >= pattern_.size()) return std::nullopt;
    int64_t high = *low;
    if (pattern_[at] == ',') {
      ++at;
      high = number().value_or(kNoLimit);
    }
    if (at >= pattern_.size() || pattern_[at] != '}') return std::nullopt;
    at_ = at + 1;
    return std::make_pair(*low, high);
  }

  absl::StatusOr<int32_t> ParseEscape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (letter == 'b' || letter == 'B')
      return Error("word boundaries (\\b, \\B) are not supported");
    if ((letter >= '1' && letter <= '9') || letter == 'k') {
      return Error("back-references are not supported");
    }
    ASSIGN_OR_RETURN(CodePointSet set, ParseEscapedSet());
    return AddSet(std::move(set));
  }

  // Parses a backslash and what follows, outside and inside of classes.
  absl::StatusOr<CodePointSet> ParseEscapedSet() {
    ++at_;
    if (Done()) return Error("a backslash at the end; write \\\\ for the character");
    const char letter = Peek();
    if (std::optional<CodePointSet> set = ClassOfLetter(letter)) {
      ++at_;
      return *std::move(set);
    }
    if (letter == 'p' || letter == 'P') return ParseCategory();
    ASSIGN_OR_RETURN(const char32_t c, ParseEscapedCharacter());
    return CodePointSet{{c, c}};
  }

  absl::StatusOr<CodePointSet> ParseCategory() {
    const bool complement = Peek() == 'P';
    ++at_;
    const size_t end = pattern_.find('}', at_);
    if (Peek() != '{' || end == absl::string_view::npos) return Error("expected \\p{category}");
    const absl::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    std::optional<CodePointSet> set = ClassOfCategory(name);
    if (!set.has_value()) {
      return Error(absl::StrCat("\\p{", base::EscapeControls(name, /*max_characters=*/64),
                                "} is not supported; use a general category, such as "
                                "\\p{L}"));
    }
    at_ = end + 1;
    return complement ? Complement(*std::move(set)) : *std::move(set);
  }

  absl::StatusOr<char32_t> ParseEscapedCharacter() {
    constexpr absl::string_view kLetters = "tnvfr0";
    constexpr char kControls[] = {'\t', '\n', '\v', '\f', '\r', '\0'};
    const char letter = Peek();
    const size_t control = kLetters.find(letter);
    if (control != absl::string_view::npos) {
      ++at_;
      if (letter == '0' && absl::ascii_isdigit(Peek()))
        return Error("octal escapes are not supported");
      return static_cast<char32_t>(kControls[control]);
    }
    if (Take("x")) return ParseHex(2);
    if (Take("u{")) {
      const size_t end = pattern_.find('}', at_);
      if (end == absl::string_view::npos) return Error("\\u{ has no '}'");
      ASSIGN_OR_RETURN(const char32_t c, ParseHex(end - at_));
      ++at_;
      return c;
    }
    if (Take("u")) {
      ASSIGN_OR_RETURN(const char32_t c, ParseHex(4));
      if (c < 0xD800 || c > 0xDBFF || !Take("\\u")) return c;
      ASSIGN_OR_RETURN(const char32_t low, ParseHex(4));
      return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (Take("c")) {
      if (!absl::ascii_isalpha(Peek())) return Error("\\c needs a letter");
      return static_cast<char32_t>(pattern_[at_++] & 0x1F);
    }
    if (absl::ascii_isalnum(letter)) {
      return Error(absl::StrCat("unknown escape \\", std::string(1, letter)));
    }
    return TakeCharacter();
  }

  absl::StatusOr<char32_t> ParseHex(size_t digits) {
    const absl::string_view text = pattern_.substr(at_, digits);
    char32_t value = 0;
    bool valid = text.size() == digits && digits >= 1 && digits <= 8;
    for (const char c : text) {
      valid &= absl::ascii_isxdigit(c);
      const int lower = absl::ascii_tolower(c);
      value = value * 16 + (lower >= 'a' ? lower - 'a' + 10 : lower - '0');
    }
    if (!valid || value > 0x10FFFF) return Error("wrong hexadecimal digits in an escape");
    at_ += digits;
    return value;
  }

  absl::StatusOr<int32_t> ParseClass() {
    ++at_;
    const bool complement = Take("^");
    CodePointSet set;
    while (true) {
      if (Done()) return Error("a class has no ']'");
      if (Take("]")) break;
      ASSIGN_OR_RETURN(CodePointSet low, ParseClassPart());
      const bool single = low.size() == 1 && low[0].first == low[0].second;
      if (Peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']' && single) {
        ++at_;
        ASSIGN_OR_RETURN(const CodePointSet high, ParseClassPart());
        if (high.size() != 1 || high[0].first != high[0].second) {
          return Error("a range of a class ends with a class");
        }
        if (high[0].first < low[0].first) return Error("a range of a class is out of order");
        low[0].second = high[0].first;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    return AddSet(complement ? Complement(std::move(set)) : std::move(set));
  }

  absl::StatusOr<CodePointSet> ParseClassPart() {
    if (Take("\\b")) return CodePointSet{{'\b', '\b'}};
    if (Peek() == '\\') return ParseEscapedSet();
    const char32_t c = TakeCharacter();
    return CodePointSet{{c, c}};
  }

  const absl::string_view pattern_;
  const LookAhead ahead_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Node> nodes_;
};

}  // namespace

absl::StatusOr<RegexSyntax> ParseRegexSyntax(absl::string_view pattern, LookAhead ahead) {
  return Parser(pattern, ahead).Run();
}

}  // namespace tidepool::engine::grammar
