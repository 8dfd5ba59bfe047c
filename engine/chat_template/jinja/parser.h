// Parser: builds the syntax tree that the interpreter evaluates.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_PARSER_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_PARSER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/chat_template/jinja/ast.h"
#include "engine/chat_template/jinja/lexer.h"

namespace tidepool::engine::jinja {

// Returns INVALID_ARGUMENT if the source is not a valid template, and UNIMPLEMENTED for an unknown
// tag. Both errors name the line. The depth of trees is limited, so that neither the parser nor the
// interpreter can overflow the stack.
absl::StatusOr<Block> ParseTemplate(absl::string_view source);

inline constexpr size_t kMaxTemplateBytes = 1 << 20;
inline constexpr int kMaxNesting = 100;          // nesting of tags, and of brackets
inline constexpr int kMaxExpressionDepth = 300;  // nesting of operators; a + b + c ... also nests

// Thread-compatible. A list of tokens with a current position.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return Peek().line; }
  Token Next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool IsOperator(absl::string_view text) const { return Is(Token::Kind::kOperator, text); }
  bool IsName(absl::string_view text) const { return Is(Token::Kind::kName, text); }
  // If the next token matches, consumes it and returns true.
  bool TakeOperator(absl::string_view text) { return Take(IsOperator(text)); }
  bool TakeName(absl::string_view text) { return Take(IsName(text)); }

  absl::Status ExpectOperator(absl::string_view text);
  absl::Status Expect(Token::Kind kind, absl::string_view what);
  absl::StatusOr<std::string> ExpectName(absl::string_view what);
  // Returns INVALID_ARGUMENT "expected WHAT, found ...".
  absl::Status Unexpected(absl::string_view expected) const;

 private:
  bool Is(Token::Kind kind, absl::string_view text) const {
    return Peek().kind == kind && Peek().text == text;
  }
  bool Take(bool there) {
    if (there) ++at_;
    return there;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Thread-compatible. Parses expressions. The stream must outlive the parser. Large because each
// rule of the grammar has its own method.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* stream) : stream_(*stream) {}

  absl::StatusOr<ExpressionPtr> Parse();
  // Parses one expression, or a tuple: several expressions separated by commas. Use kNoCondition
  // for the iterable of a loop, because an "if" after it belongs to the loop.
  enum class TupleItems : uint8_t { kWithCondition, kNoCondition };
  absl::StatusOr<ExpressionPtr> ParseTuple(TupleItems items = TupleItems::kWithCondition);
  // Parses "name(...) | name(...)" of a filter block, or "| name(...)" of a set block. The filters
  // are applied to the variable kBlockText.
  absl::StatusOr<ExpressionPtr> ParseBlockFilters();

  // Returns the names of variables that were used by the expressions since the last call.
  std::set<std::string> TakeNames() { return std::exchange(names_, {}); }
  void PutNames(std::set<std::string> names) { names_ = std::move(names); }

 private:
  using Level = absl::StatusOr<ExpressionPtr> (ExpressionParser::*)();

  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseCompare();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  absl::StatusOr<ExpressionPtr> ParseUnary();
  absl::StatusOr<ExpressionPtr> ParseUnfiltered();
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseParentheses();
  absl::StatusOr<ExpressionPtr> ParseListLiteral();
  absl::StatusOr<ExpressionPtr> ParseDictLiteral();
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> ParseFiltersAndTests(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr base);
  absl::Status ParseArguments(Expression* call);
  absl::Status ParseArgument(Expression* call);
  bool StartsTestArgument() const;

  // Parses left OP right OP right ..., for operators of one precedence.
  absl::StatusOr<ExpressionPtr> ParseBinary(Level level,
                                            const std::vector<absl::string_view>& operators);
  ExpressionPtr Make(Expression::Kind kind, std::string name) const;
  // Sets the depth of the expression. Returns INVALID_ARGUMENT if the depth exceeds
  // kMaxExpressionDepth.
  absl::StatusOr<ExpressionPtr> Finish(ExpressionPtr expression) const;

  TokenStream& stream_;
  int nesting_ = 0;
  std::set<std::string> names_;
};

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_PARSER_H_
