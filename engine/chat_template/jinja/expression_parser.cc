// Parses the expressions of a template.
#include <algorithm>
#include <charconv>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/parser.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Kind = Expression::Kind;

// Returns whether a name is an operator or keyword, so that no variable can have it.
bool IsReserved(absl::string_view name) {
  for (const absl::string_view word : {"and", "or", "not", "if", "else", "in", "is", "elif"}) {
    if (name == word) return true;
  }
  return false;
}

// Parses numbers such as "12", "0x1f", "0o17" and "0b101". Returns false if the number is too
// large.
bool ParseInteger(absl::string_view digits, int64_t* value) {
  const char kind = digits.size() > 2 && digits[0] == '0' ? absl::ascii_tolower(digits[1]) : '0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  if (base != 10) digits.remove_prefix(2);
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, *value, base);
  return read.ec == std::errc() && read.ptr == end;
}

}  // namespace

ExpressionPtr ExpressionParser::Make(Kind kind, std::string name) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = stream_.line();
  expression->name = std::move(name);
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Finish(ExpressionPtr expression) const {
  int depth = 0;
  for (const ExpressionPtr& part : expression->parts) {
    if (part != nullptr) depth = std::max(depth, part->depth);
  }
  for (const auto& [unused, part] : expression->named) depth = std::max(depth, part->depth);
  for (const ExpressionPtr* part : {&expression->more, &expression->more_named}) {
    if (*part != nullptr) depth = std::max(depth, (*part)->depth);
  }
  expression->depth = depth + 1;
  if (expression->depth > kMaxExpressionDepth) {
    return InvalidAt(expression->line, absl::StrCat("an expression is nested deeper than ",
                                                    kMaxExpressionDepth, " levels"));
  }
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Parse() {
  // The parser only recurses at brackets, so this limits the recursion.
  if (++nesting_ > kMaxNesting) {
    return InvalidAt(stream_.line(),
                     absl::StrCat("brackets are nested deeper than ", kMaxNesting, " levels"));
  }
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (stream_.IsName("if")) {
    ExpressionPtr whole = Make(Kind::kConditional, "");
    stream_.Next();
    ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (stream_.TakeName("else")) {
      ASSIGN_OR_RETURN(otherwise, Parse());
    }
    whole->parts.push_back(std::move(condition));
    whole->parts.push_back(std::move(value));
    whole->parts.push_back(std::move(otherwise));
    ASSIGN_OR_RETURN(value, Finish(std::move(whole)));
  }
  --nesting_;
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(TupleItems items) {
  const auto parse = [this, items] {
    return items == TupleItems::kWithCondition ? Parse() : ParseOr();
  };
  ExpressionPtr tuple = Make(Kind::kTuple, "");
  ASSIGN_OR_RETURN(ExpressionPtr first, parse());
  if (!stream_.IsOperator(",")) return first;
  tuple->parts.push_back(std::move(first));
  while (stream_.TakeOperator(",")) {
    const Token& next = stream_.Peek();
    if (next.kind == Token::Kind::kBlockEnd || next.kind == Token::Kind::kPrintEnd) break;
    if (items == TupleItems::kNoCondition && stream_.IsName("recursive")) break;
    ASSIGN_OR_RETURN(ExpressionPtr item, parse());
    tuple->parts.push_back(std::move(item));
  }
  return Finish(std::move(tuple));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBlockFilters() {
  ExpressionPtr value = Make(Kind::kName, kBlockText);
  if (stream_.Peek().kind == Token::Kind::kName) {
    ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
  }
  while (stream_.TakeOperator("|")) {
    ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr base) {
  ExpressionPtr filter = Make(Kind::kFilter, "");
  ASSIGN_OR_RETURN(filter->name, stream_.ExpectName("a filter's name"));
  filter->parts.push_back(std::move(base));
  if (stream_.IsOperator("(")) RETURN_IF_ERROR(ParseArguments(filter.get()));
  return Finish(std::move(filter));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBinary(
    Level level, const std::vector<absl::string_view>& operators) {
  ASSIGN_OR_RETURN(ExpressionPtr left, (this->*level)());
  while (true) {
    const Token& token = stream_.Peek();
    const bool is_word = token.kind == Token::Kind::kName;
    if (!is_word && token.kind != Token::Kind::kOperator) return left;
    if (std::find(operators.begin(), operators.end(), token.text) == operators.end()) return left;
    ExpressionPtr binary = Make(Kind::kBinary, token.text);
    stream_.Next();
    ASSIGN_OR_RETURN(ExpressionPtr right, (this->*level)());
    binary->parts.push_back(std::move(left));
    binary->parts.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(binary)));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  return ParseBinary(&ExpressionParser::ParseAnd, {"or"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  return ParseBinary(&ExpressionParser::ParseNot, {"and"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  std::vector<ExpressionPtr> nots;
  while (stream_.IsName("not")) {
    nots.push_back(Make(Kind::kUnary, "not"));
    stream_.Next();
  }
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseCompare());
  for (; !nots.empty(); nots.pop_back()) {
    nots.back()->parts.push_back(std::move(value));
    ASSIGN_OR_RETURN(value, Finish(std::move(nots.back())));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  ExpressionPtr compare = Make(Kind::kCompare, "");
  compare->parts.push_back(std::move(first));
  while (true) {
    const Token& token = stream_.Peek();
    std::string op;
    if (token.kind == Token::Kind::kOperator) {
      for (const absl::string_view known : {"==", "!=", "<", "<=", ">", ">="}) {
        if (token.text == known) op = std::string(known);
      }
    } else if (stream_.IsName("in")) {
      op = "in";
    } else if (stream_.IsName("not") && stream_.Peek(1).kind == Token::Kind::kName &&
               stream_.Peek(1).text == "in") {
      op = "not in";
      stream_.Next();
    }
    if (op.empty()) break;
    stream_.Next();
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    compare->operators.push_back(std::move(op));
    compare->parts.push_back(std::move(right));
  }
  if (compare->operators.empty()) return std::move(compare->parts.front());
  return Finish(std::move(compare));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat, {"+", "-"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  return ParseBinary(&ExpressionParser::ParseProduct, {"~"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {"*", "/", "//", "%"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseUnary, {"**"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary() {
  std::vector<ExpressionPtr> signs;
  while (stream_.IsOperator("-") || stream_.IsOperator("+")) {
    signs.push_back(Make(Kind::kUnary, stream_.Peek().text));
    stream_.Next();
  }
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseUnfiltered());
  for (; !signs.empty(); signs.pop_back()) {
    signs.back()->parts.push_back(std::move(value));
    ASSIGN_OR_RETURN(value, Finish(std::move(signs.back())));
  }
  // The sign has a higher precedence than a filter after it.
  return ParseFiltersAndTests(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnfiltered() {
  ASSIGN_OR_RETURN(ExpressionPtr value, ParsePrimary());
  return ParsePostfix(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const Token token = stream_.Peek();
  ExpressionPtr literal = Make(Kind::kLiteral, "");
  switch (token.kind) {
    case Token::Kind::kName:
      if (IsReserved(token.text)) return stream_.Unexpected("an expression");
      stream_.Next();
      if (token.text == "true" || token.text == "True") {
        literal->literal = Value::MakeBool(true);
      } else if (token.text == "false" || token.text == "False") {
        literal->literal = Value::MakeBool(false);
      } else if (token.text != "none" && token.text != "None") {
        literal->kind = Kind::kName;
        literal->name = token.text;
        names_.insert(token.text);
      }
      return literal;
    case Token::Kind::kString: {
      std::string text;
      while (stream_.Peek().kind == Token::Kind::kString) text += stream_.Next().text;
      literal->literal = Value::MakeText(text, TextOrigin::kTemplate);
      return literal;
    }
    case Token::Kind::kInteger: {
      int64_t value = 0;
      if (!ParseInteger(token.text, &value)) {
        return InvalidAt(token.line, absl::StrCat("the integer ", token.text, " is too large"));
      }
      literal->literal = Value::MakeInt(value);
      stream_.Next();
      return literal;
    }
    case Token::Kind::kFloat: {
      double value = 0;
      if (!absl::SimpleAtod(token.text, &value)) return stream_.Unexpected("a number");
      literal->literal = Value::MakeFloat(value);
      stream_.Next();
      return literal;
    }
    default:
      break;
  }
  if (stream_.IsOperator("(")) return ParseParentheses();
  if (stream_.IsOperator("[")) return ParseListLiteral();
  if (stream_.IsOperator("{")) return ParseDictLiteral();
  return stream_.Unexpected("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  ExpressionPtr tuple = Make(Kind::kTuple, "");
  stream_.Next();
  bool is_tuple = stream_.IsOperator(")");
  while (!stream_.IsOperator(")")) {
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    tuple->parts.push_back(std::move(item));
    if (!stream_.TakeOperator(",")) break;
    is_tuple = true;
  }
  RETURN_IF_ERROR(stream_.ExpectOperator(")"));
  if (!is_tuple) return std::move(tuple->parts.front());
  return Finish(std::move(tuple));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseListLiteral() {
  ExpressionPtr list = Make(Kind::kList, "");
  stream_.Next();
  while (!stream_.IsOperator("]")) {
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    list->parts.push_back(std::move(item));
    if (!stream_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return Finish(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDictLiteral() {
  ExpressionPtr dict = Make(Kind::kDict, "");
  stream_.Next();
  while (!stream_.IsOperator("}")) {
    ASSIGN_OR_RETURN(ExpressionPtr key, Parse());
    RETURN_IF_ERROR(stream_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    dict->parts.push_back(std::move(key));
    dict->parts.push_back(std::move(value));
    if (!stream_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(stream_.ExpectOperator("}"));
  return Finish(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr base) {
  while (true) {
    if (stream_.IsOperator(".")) {
      ExpressionPtr attribute = Make(Kind::kAttribute, "");
      stream_.Next();
      attribute->parts.push_back(std::move(base));
      if (stream_.Peek().kind == Token::Kind::kInteger) {  // x.0 means x[0]
        attribute->kind = Kind::kSubscript;
        ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
        attribute->parts.push_back(std::move(index));
      } else {
        ASSIGN_OR_RETURN(attribute->name, stream_.ExpectName("an attribute's name"));
      }
      ASSIGN_OR_RETURN(base, Finish(std::move(attribute)));
    } else if (stream_.IsOperator("[")) {
      ASSIGN_OR_RETURN(base, ParseSubscript(std::move(base)));
    } else if (stream_.IsOperator("(")) {
      ExpressionPtr call = Make(Kind::kCall, "");
      call->parts.push_back(std::move(base));
      RETURN_IF_ERROR(ParseArguments(call.get()));
      ASSIGN_OR_RETURN(base, Finish(std::move(call)));
    } else {
      return base;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr base) {
  ExpressionPtr subscript = Make(Kind::kSubscript, "");
  stream_.Next();
  subscript->parts.push_back(std::move(base));
  // A slice has up to three optional parts, separated by colons.
  for (int part = 0; part < 3; ++part) {
    ExpressionPtr index;
    if (!stream_.IsOperator(":") && !stream_.IsOperator("]")) {
      ASSIGN_OR_RETURN(index, Parse());
    }
    subscript->parts.push_back(std::move(index));
    if (!stream_.TakeOperator(":")) break;
    subscript->kind = Kind::kSlice;
  }
  if (subscript->kind == Kind::kSlice) {
    subscript->parts.resize(4);
  } else if (subscript->parts.back() == nullptr) {
    return stream_.Unexpected("an index");
  }
  RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return Finish(std::move(subscript));
}

absl::Status ExpressionParser::ParseArguments(Expression* call) {
  RETURN_IF_ERROR(stream_.ExpectOperator("("));
  while (!stream_.IsOperator(")")) {
    RETURN_IF_ERROR(ParseArgument(call));
    if (!stream_.TakeOperator(",")) break;
  }
  return stream_.ExpectOperator(")");
}

absl::Status ExpressionParser::ParseArgument(Expression* call) {
  const bool is_named = stream_.Peek().kind == Token::Kind::kName &&
                        stream_.Peek(1).kind == Token::Kind::kOperator &&
                        stream_.Peek(1).text == "=";
  if (stream_.IsOperator("*") && call->more == nullptr && call->more_named == nullptr) {
    stream_.Next();
    ASSIGN_OR_RETURN(call->more, Parse());
  } else if (stream_.IsOperator("**") && call->more_named == nullptr) {
    stream_.Next();
    ASSIGN_OR_RETURN(call->more_named, Parse());
  } else if (is_named && call->more_named == nullptr) {
    std::string name = stream_.Next().text;
    stream_.Next();
    for (const auto& [taken, unused] : call->named) {
      if (taken != name) continue;
      return InvalidAt(stream_.line(), absl::StrCat("the argument '", name, "' is given twice"));
    }
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    call->named.emplace_back(std::move(name), std::move(value));
  } else if (call->named.empty() && call->more == nullptr && call->more_named == nullptr) {
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    call->parts.push_back(std::move(value));
  } else {
    return InvalidAt(stream_.line(),
                     "arguments must be in this order: positional, named, *args, **kwargs");
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr base) {
  while (true) {
    if (stream_.IsOperator("|")) {
      stream_.Next();
      ASSIGN_OR_RETURN(base, ParseFilter(std::move(base)));
    } else if (stream_.IsName("is")) {
      stream_.Next();
      ASSIGN_OR_RETURN(base, ParseTest(std::move(base)));
    } else if (stream_.IsOperator("(")) {
      ExpressionPtr call = Make(Kind::kCall, "");
      call->parts.push_back(std::move(base));
      RETURN_IF_ERROR(ParseArguments(call.get()));
      ASSIGN_OR_RETURN(base, Finish(std::move(call)));
    } else {
      return base;
    }
  }
}

bool ExpressionParser::StartsTestArgument() const {
  const Token& token = stream_.Peek();
  switch (token.kind) {
    case Token::Kind::kName:
      return !IsReserved(token.text);
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    case Token::Kind::kOperator:
      return token.text == "[" || token.text == "{";
    default:
      return false;
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr base) {
  const bool negated = stream_.TakeName("not");
  ExpressionPtr test = Make(Kind::kTest, "");
  ASSIGN_OR_RETURN(test->name, stream_.ExpectName("a test's name"));
  test->parts.push_back(std::move(base));
  if (stream_.IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if (StartsTestArgument()) {
    ASSIGN_OR_RETURN(ExpressionPtr argument, ParseUnfiltered());
    test->parts.push_back(std::move(argument));
  }
  if (!negated) return Finish(std::move(test));
  ExpressionPtr inverse = Make(Kind::kUnary, "not");
  ASSIGN_OR_RETURN(ExpressionPtr inner, Finish(std::move(test)));
  inverse->parts.push_back(std::move(inner));
  return Finish(std::move(inverse));
}

}  // namespace tidepool::engine::jinja
