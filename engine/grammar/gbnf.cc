#include "engine/grammar/gbnf.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/token_trie.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

constexpr int kMaxGroupDepth = 100;

// A part of a rule. It is a regular expression if it refers to no rule, because regular expressions
// are faster.
struct Part {
  bool regular = true;
  Regex regex = kEmptyRegex;
  Expr expr = kEmptyExpr;  // only if not regular
};

class Parser {
 public:
  Parser(absl::string_view text, const Tokenizer* tokenizer, GrammarIr* ir)
      : text_(text), tokenizer_(tokenizer), ir_(*ir), pool_(ir->regexes()) {}

  absl::StatusOr<Expr> Run() {
    RETURN_IF_ERROR(base::CheckUtf8(text_, "the grammar"));
    SkipSpace(Newlines::kSkip);
    while (!Done()) {
      RETURN_IF_ERROR(ParseRule());
      RETURN_IF_ERROR(ir_.CheckLimits());
      SkipSpace(Newlines::kSkip);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined)
        return absl::InvalidArgumentError(absl::StrCat("GBNF, line ", rule.line, ": rule ",
                                                       base::Quoted(name), " is not defined"));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      return absl::InvalidArgumentError("GBNF: there is no rule named root; add root ::= ...");
    }
    return ir_.Rule(root->second.number);
  }

 private:
  enum class Newlines : uint8_t { kSkip, kStop };
  struct RuleEntry {
    int32_t number = 0;
    int line = 0;  // line of the first use
    bool defined = false;
  };

  absl::Status Error(absl::string_view reason) const {
    const auto end = text_.begin() + static_cast<int64_t>(std::min(at_, text_.size()));
    return absl::InvalidArgumentError(
        absl::StrCat("GBNF, line ", 1 + std::count(text_.begin(), end, '\n'), ": ", reason));
  }
  int Line() const {
    const auto end = text_.begin() + static_cast<int64_t>(at_);
    return static_cast<int>(1 + std::count(text_.begin(), end, '\n'));
  }

  bool Done() const { return at_ >= text_.size(); }
  char Peek() const { return Done() ? '\0' : text_[at_]; }
  bool Take(absl::string_view word) {
    if (!absl::StartsWith(text_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }

  void SkipSpace(Newlines newlines) {
    while (!Done()) {
      const char c = Peek();
      if (c == '#') {
        while (!Done() && Peek() != '\n' && Peek() != '\r') ++at_;
      } else if (c == ' ' || c == '\t' ||
                 (newlines == Newlines::kSkip && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }

  std::string TakeName() {
    const size_t begin = at_;
    while (absl::ascii_isalnum(Peek()) || Peek() == '-' || Peek() == '_') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  RuleEntry& RuleNamed(const std::string& name) {
    const auto [entry, added] = rules_.try_emplace(name);
    if (added) entry->second = {ir_.AddRule(name), Line(), false};
    return entry->second;
  }

  absl::Status ParseRule() {
    const std::string name = TakeName();
    if (name.empty()) return Error("expected the name of a rule");
    SkipSpace(Newlines::kStop);
    if (!Take("::=")) return Error("expected ::= after the name of a rule");
    if (RuleNamed(name).defined) return Error(absl::StrCat("rule ", name, " is defined twice"));
    RuleNamed(name).defined = true;
    SkipSpace(Newlines::kSkip);
    ASSIGN_OR_RETURN(const Part body, ParseOr(Newlines::kStop));
    if (!Done() && Peek() != '\n' && Peek() != '\r') return Error("expected the end of the rule");
    ir_.SetRule(RuleNamed(name).number, ToExpr(body));
    return absl::OkStatus();
  }

  Expr ToExpr(const Part& part) { return part.regular ? ir_.Match(part.regex) : part.expr; }

  absl::StatusOr<Part> ParseOr(Newlines newlines) {
    if (++depth_ > kMaxGroupDepth) return Error("groups are nested deeper than 100 levels");
    std::vector<Part> parts;
    while (true) {
      ASSIGN_OR_RETURN(parts.emplace_back(), ParseSequence(newlines));
      if (!Take("|")) break;
      SkipSpace(Newlines::kSkip);
    }
    --depth_;
    std::vector<Regex> regexes;
    std::vector<Expr> exprs;
    for (const Part& part : parts) {
      part.regular ? regexes.push_back(part.regex) : exprs.push_back(part.expr);
    }
    const Regex regular = pool_.Or(std::move(regexes));
    if (exprs.empty()) return Part{.regex = regular};
    exprs.push_back(ir_.Match(regular));
    return Part{.regular = false, .expr = ir_.Alt(std::move(exprs))};
  }

  absl::StatusOr<Part> ParseSequence(Newlines newlines) {
    std::vector<Part> parts;
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Part> part, ParseTerm());
      if (!part.has_value()) break;
      SkipSpace(newlines);
      ASSIGN_OR_RETURN(const Part repeated, ParseRepeats(*part, newlines));
      if (!parts.empty() && parts.back().regular && repeated.regular) {
        parts.back().regex = pool_.Concat(parts.back().regex, repeated.regex);
      } else {
        parts.push_back(repeated);
      }
    }
    if (parts.empty()) return Part();
    if (parts.size() == 1) return parts[0];
    std::vector<Expr> exprs;
    for (const Part& part : parts) exprs.push_back(ToExpr(part));
    return Part{.regular = false, .expr = ir_.Seq(exprs)};
  }

  // Returns nullopt at the end of a sequence.
  absl::StatusOr<std::optional<Part>> ParseTerm() {
    const char c = Peek();
    if (c == '"') return ParseLiteral();
    if (c == '[') return ParseClass();
    if (c == '.') {
      ++at_;
      return Part{.regex = pool_.AnyCharacter()};
    }
    if (c == '<' || c == '!') return ParseToken();
    if (c == '(') {
      ++at_;
      SkipSpace(Newlines::kSkip);
      ASSIGN_OR_RETURN(const Part inner, ParseOr(Newlines::kSkip));
      if (!Take(")")) return Error("a group has no ')'");
      return inner;
    }
    if (const std::string name = TakeName(); !name.empty()) {
      return Part{.regular = false, .expr = ir_.Rule(RuleNamed(name).number)};
    }
    return std::optional<Part>();
  }

  absl::StatusOr<Part> ParseRepeats(Part part, Newlines newlines) {
    while (true) {
      int64_t min = 0, max = kNoLimit;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Peek() == '{') {
        RETURN_IF_ERROR(ParseCounts(&min, &max));
      } else {
        return part;
      }
      SkipSpace(newlines);
      const auto low = static_cast<int32_t>(min), high = static_cast<int32_t>(max);
      if (part.regular) {
        part.regex = pool_.Repeat(part.regex, low, high);
      } else {
        part.expr = ir_.Repeat(part.expr, low, high);
      }
    }
  }

  absl::Status ParseCounts(int64_t* min, int64_t* max) {
    const size_t end = text_.find('}', at_);
    if (end == absl::string_view::npos) return Error("{ has no '}'");
    const absl::string_view counts = text_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = counts.find(',');
    const absl::string_view low = absl::StripAsciiWhitespace(counts.substr(0, comma));
    if (!absl::SimpleAtoi(low, min) || *min < 0 || *min > kMaxRepeats) {
      return Error(absl::StrCat("expected {m}, {m,} or {m,n} with counts up to ", kMaxRepeats));
    }
    *max = *min;
    if (comma != absl::string_view::npos) {
      const absl::string_view high = absl::StripAsciiWhitespace(counts.substr(comma + 1));
      *max = kNoLimit;
      if (!high.empty() && (!absl::SimpleAtoi(high, max) || *max < *min || *max > kMaxRepeats)) {
        return Error(absl::StrCat("expected {m,n} with m <= n <= ", kMaxRepeats));
      }
    }
    at_ = end + 1;
    return absl::OkStatus();
  }

  absl::StatusOr<Part> ParseLiteral() {
    ++at_;
    std::string literal;
    while (!Take("\"")) {
      if (Done() || Peek() == '\n') return Error("a literal has no closing quotation mark");
      ASSIGN_OR_RETURN(const char32_t c, TakeCharacter());
      base::AppendUtf8(c, &literal);
    }
    return Part{.regex = pool_.Literal(literal)};
  }

  absl::StatusOr<Part> ParseClass() {
    ++at_;
    const bool complement = Take("^");
    CodePointSet set;
    while (!Take("]")) {
      if (Done()) return Error("a class has no ']'");
      ASSIGN_OR_RETURN(const char32_t low, TakeCharacter());
      char32_t high = low;
      if (Peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        if (Done()) return Error("a class has no ']'");
        ASSIGN_OR_RETURN(high, TakeCharacter());
        if (high < low) return Error("a range of a class is out of order");
      }
      set.emplace_back(low, high);
    }
    if (complement) set = Complement(std::move(set));
    return Part{.regex = pool_.Characters(set)};
  }

  absl::StatusOr<char32_t> TakeCharacter() {
    const base::Utf8Char next = base::NextUtf8Char(text_.substr(at_));
    at_ += next.size;
    if (next.code_point != '\\') return next.code_point;
    if (Done()) return Error("a backslash at the end");
    const char letter = text_[at_++];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits > 0) {
      char32_t value = 0;
      const absl::string_view hex = text_.substr(at_, digits);
      bool valid = hex.size() == digits;
      for (const char c : hex) {
        valid &= absl::ascii_isxdigit(c);
        value = value * 16 + (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
      }
      valid &= value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
      if (!valid) return Error("wrong hexadecimal digits in an escape");
      at_ += digits;
      return value;
    }
    constexpr absl::string_view kLetters = "tnr\\\"[]-";
    constexpr absl::string_view kMeanings = "\t\n\r\\\"[]-";
    const size_t known = kLetters.find(letter);
    if (known == absl::string_view::npos) {
      const base::Utf8Char escaped = base::NextUtf8Char(text_.substr(at_ - 1));
      return Error(absl::StrCat("unknown escape \\",
                                base::EscapeControls(text_.substr(at_ - 1, escaped.size), 1)));
    }
    return static_cast<unsigned char>(kMeanings[known]);
  }

  // Parses <[id]>, <name>, and their complements, which begin with '!'.
  absl::StatusOr<Part> ParseToken() {
    const bool complement = Take("!");
    const size_t end = text_.find('>', at_);
    if (Peek() != '<' || end == absl::string_view::npos) {
      return Error("expected a token, such as <[1000]> or <think>");
    }
    const absl::string_view term = text_.substr(at_, end + 1 - at_);
    if (tokenizer_ == nullptr) {
      return Error(absl::StrCat("token ", base::Quoted(term), " needs a model's vocabulary"));
    }
    int32_t id = -1;
    if (absl::StartsWith(term, "<[")) {
      if (!absl::EndsWith(term, "]>") || !absl::SimpleAtoi(term.substr(2, term.size() - 4), &id) ||
          !tokenizer_->IsValid(id)) {
        return Error(absl::StrCat("token ", base::Quoted(term), " is not in the vocabulary"));
      }
    } else {
      id = tokenizer_->FindToken(term).value_or(-1);
      if (id < 0) {
        return Error(absl::StrCat(base::Quoted(term), " is not one token of the vocabulary"));
      }
    }
    at_ = end + 1;
    const Regex token = pool_.Literal(TokenTerm(id));
    if (!complement) return Part{.regex = token};
    const Regex digit = pool_.Bytes(ByteRange(0, 0x7F));
    const Regex any = pool_.Concat(pool_.Bytes(ByteRange(kTokenByte, kTokenByte)),
                                   pool_.Repeat(digit, kTokenTermBytes - 1, kTokenTermBytes - 1));
    return Part{.regex = pool_.And({any, pool_.Not(token)})};
  }

  const absl::string_view text_;
  const Tokenizer* tokenizer_;
  GrammarIr& ir_;
  RegexPool& pool_;
  size_t at_ = 0;
  int depth_ = 0;
  absl::flat_hash_map<std::string, RuleEntry> rules_;
};

}  // namespace

absl::StatusOr<Expr> EmitGbnf(absl::string_view text, const Tokenizer* tokenizer, GrammarIr* ir) {
  if (text.size() > kMaxGbnfBytes) {
    return absl::InvalidArgumentError(absl::StrCat("GBNF: the grammar has ", text.size(),
                                                   " bytes; the limit is ", kMaxGbnfBytes));
  }
  return Parser(text, tokenizer, ir).Run();
}

absl::StatusOr<GrammarIr> CompileGbnf(absl::string_view text, const Tokenizer* tokenizer,
                                      GrammarLimits limits) {
  GrammarIr ir(limits);
  ASSIGN_OR_RETURN(const Expr root, EmitGbnf(text, tokenizer, &ir));
  ir.set_start(root);
  const absl::Status finished = ir.Finish();
  if (!finished.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("GBNF: ", finished.message()));
  }
  return ir;
}

}  // namespace tidepool::engine::grammar
