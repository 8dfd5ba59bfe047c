#include "engine/chat_template/jinja/parser.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "text";
    case Token::Kind::kPrintBegin:
      return "'{{'";
    case Token::Kind::kPrintEnd:
      return "'}}'";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kString:
      return "a string";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

// Thread-compatible. Parses tags.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(&stream_) {}

  absl::StatusOr<Block> Run() {
    Block block;
    RETURN_IF_ERROR(ParseUntil({}, &block));
    return block;
  }

 private:
  using Names = std::vector<absl::string_view>;

  bool IsAny(const Names& names) const {
    return std::any_of(names.begin(), names.end(),
                       [this](absl::string_view name) { return stream_.IsName(name); });
  }

  // Parses statements up to a tag that has one of the names in `ends`. If `ends` is empty, parses
  // up to the end of the source. The "{%" of the tag is consumed, so its name is the next token.
  absl::Status ParseUntil(const Names& ends, Block* block) {
    const int begin_line = stream_.line();
    if (++nesting_ > kMaxNesting) {
      return InvalidAt(begin_line,
                       absl::StrCat("tags are nested deeper than ", kMaxNesting, " levels"));
    }
    while (true) {
      const Token token = stream_.Peek();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.empty()) break;
        return InvalidAt(begin_line, absl::StrCat("a block has no {% ", ends.back(), " %}"));
      }
      stream_.Next();
      if (token.kind == Token::Kind::kBlockBegin && IsAny(ends)) break;
      Statement statement;
      statement.line = token.line;
      if (token.kind == Token::Kind::kData) {
        statement.text = token.text;
      } else if (token.kind == Token::Kind::kPrintBegin) {
        statement.kind = Statement::Kind::kPrint;
        ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple());
        RETURN_IF_ERROR(stream_.Expect(Token::Kind::kPrintEnd, "'}}'"));
      } else {
        RETURN_IF_ERROR(ParseTag(&statement));
      }
      block->push_back(std::move(statement));
    }
    --nesting_;
    return absl::OkStatus();
  }

  absl::Status EndTag() { return stream_.Expect(Token::Kind::kBlockEnd, "'%}'"); }

  // Parses the end of the opening tag, the block, and the whole closing tag.
  absl::Status ParseBody(absl::string_view end, Block* block) {
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(ParseUntil({end}, block));
    stream_.Next();
    return EndTag();
  }

  absl::Status ParseTag(Statement* statement) {
    ASSIGN_OR_RETURN(const std::string name, stream_.ExpectName("a tag's name"));
    if (name == "if") return ParseIf(statement);
    if (name == "for") return ParseFor(statement);
    if (name == "set") return ParseSet(statement);
    if (name == "with") return ParseWith(statement);
    if (name == "filter") return ParseFilterBlock(statement);
    if (name == "macro") return ParseMacro(statement);
    if (name == "call") return ParseCall(statement);
    if (name == "do") {
      statement->kind = Statement::Kind::kDo;
      ASSIGN_OR_RETURN(statement->expression, expressions_.ParseTuple());
      return EndTag();
    }
    if (name == "generation") {
      // The tag marks the assistant's text for training. A rendering only groups its contents.
      statement->kind = Statement::Kind::kGroup;
      return ParseBody("endgeneration", &statement->body);
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return InvalidAt(statement->line, absl::StrCat(name, " outside of a loop"));
      statement->kind = name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      return EndTag();
    }
    for (const absl::string_view known :
         {"autoescape", "block", "extends", "from", "import", "include", "trans"}) {
      if (name == known) {
        return UnimplementedAt(statement->line,
                               absl::StrCat("the tag '", name, "' is not supported"));
      }
    }
    return InvalidAt(statement->line, absl::StrCat("the tag '", name, "' is not allowed here"));
  }

  absl::Status ParseIf(Statement* statement) {
    statement->kind = Statement::Kind::kIf;
    while (true) {
      Statement::Branch& branch = statement->branches.emplace_back();
      ASSIGN_OR_RETURN(branch.condition,
                       expressions_.ParseTuple(ExpressionParser::TupleItems::kNoCondition));
      RETURN_IF_ERROR(EndTag());
      RETURN_IF_ERROR(ParseUntil({"elif", "else", "endif"}, &branch.body));
      if (!stream_.TakeName("elif")) break;
    }
    if (stream_.TakeName("else")) return ParseBody("endif", &statement->else_body);
    stream_.Next();
    return EndTag();
  }

  absl::Status ParseFor(Statement* statement) {
    statement->kind = Statement::Kind::kFor;
    ASSIGN_OR_RETURN(statement->target, ParseTarget());
    if (!stream_.TakeName("in")) return stream_.Unexpected("'in'");
    ASSIGN_OR_RETURN(statement->expression,
                     expressions_.ParseTuple(ExpressionParser::TupleItems::kNoCondition));
    if (stream_.TakeName("if")) {
      ASSIGN_OR_RETURN(statement->filter, expressions_.Parse());
    }
    statement->recursive = stream_.TakeName("recursive");
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    RETURN_IF_ERROR(ParseUntil({"else", "endfor"}, &statement->body));
    --loops_;
    if (stream_.TakeName("else")) return ParseBody("endfor", &statement->else_body);
    stream_.Next();
    return EndTag();
  }

  // Parses a name, an attribute of a name, or a tuple in brackets.
  absl::StatusOr<Target> ParseOneTarget() {
    Target target;
    if (stream_.TakeOperator("(")) {
      if (++nesting_ > kMaxNesting) {
        return InvalidAt(stream_.line(),
                         absl::StrCat("brackets are nested deeper than ", kMaxNesting, " levels"));
      }
      ASSIGN_OR_RETURN(target, ParseTarget());
      --nesting_;
      RETURN_IF_ERROR(stream_.ExpectOperator(")"));
      return target;
    }
    ASSIGN_OR_RETURN(target.name, stream_.ExpectName("a variable's name"));
    for (const absl::string_view taken : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == taken) {
        return InvalidAt(stream_.line(), absl::StrCat("cannot assign to '", taken, "'"));
      }
    }
    if (stream_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(target.attribute, stream_.ExpectName("an attribute's name"));
    }
    return target;
  }

  // Parses targets such as "a, (b, c), d.e".
  absl::StatusOr<Target> ParseTarget() {
    ASSIGN_OR_RETURN(Target first, ParseOneTarget());
    if (!stream_.IsOperator(",")) return first;
    Target tuple;
    tuple.items.push_back(std::move(first));
    while (stream_.TakeOperator(",")) {
      if (stream_.IsName("in") || stream_.IsOperator("=") || stream_.IsOperator(")")) break;
      ASSIGN_OR_RETURN(Target item, ParseOneTarget());
      tuple.items.push_back(std::move(item));
    }
    return tuple;
  }

  absl::Status ParseSet(Statement* statement) {
    ASSIGN_OR_RETURN(statement->target, ParseTarget());
    if (stream_.TakeOperator("=")) {
      statement->kind = Statement::Kind::kSet;
      ASSIGN_OR_RETURN(statement->expression, expressions_.ParseTuple());
      return EndTag();
    }
    statement->kind = Statement::Kind::kSetBlock;
    if (stream_.IsOperator("|")) {
      ASSIGN_OR_RETURN(statement->filter, expressions_.ParseBlockFilters());
    }
    return ParseBody("endset", &statement->body);
  }

  absl::Status ParseWith(Statement* statement) {
    statement->kind = Statement::Kind::kWith;
    while (stream_.Peek().kind != Token::Kind::kBlockEnd) {
      if (!statement->assignments.empty()) RETURN_IF_ERROR(stream_.ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseOneTarget());
      RETURN_IF_ERROR(stream_.ExpectOperator("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Parse());
      statement->assignments.emplace_back(std::move(target), std::move(value));
    }
    return ParseBody("endwith", &statement->body);
  }

  absl::Status ParseFilterBlock(Statement* statement) {
    statement->kind = Statement::Kind::kFilter;
    if (stream_.Peek().kind != Token::Kind::kName) return stream_.Unexpected("a filter's name");
    ASSIGN_OR_RETURN(statement->filter, expressions_.ParseBlockFilters());
    return ParseBody("endfilter", &statement->body);
  }

  // Parses parameters such as "(a, b=1)".
  absl::Status ParseParameters(MacroNode* macro) {
    RETURN_IF_ERROR(stream_.ExpectOperator("("));
    bool has_default = false;
    while (!stream_.IsOperator(")")) {
      ASSIGN_OR_RETURN(std::string parameter, stream_.ExpectName("a parameter's name"));
      ExpressionPtr fallback;
      if (stream_.TakeOperator("=")) {
        has_default = true;
        ASSIGN_OR_RETURN(fallback, expressions_.Parse());
      } else if (has_default) {
        return InvalidAt(stream_.line(),
                         absl::StrCat("the parameter '", parameter,
                                      "' needs a default, because an earlier parameter has one"));
      }
      macro->parameters.emplace_back(std::move(parameter), std::move(fallback));
      if (!stream_.TakeOperator(",")) break;
    }
    return stream_.ExpectOperator(")");
  }

  // Parses the body of a macro. In it, break and continue cannot refer to loops around the macro.
  // Also records which special arguments (varargs, kwargs, caller) the body uses.
  absl::Status ParseMacroBody(absl::string_view end, MacroNode* macro) {
    macro->body = std::make_unique<Block>();
    const int loops = std::exchange(loops_, 0);
    const std::set<std::string> outside = expressions_.TakeNames();
    RETURN_IF_ERROR(ParseBody(end, macro->body.get()));
    std::set<std::string> names = expressions_.TakeNames();
    loops_ = loops;
    const auto takes = [&names, macro](absl::string_view name) {
      return names.count(std::string(name)) > 0 &&
             std::none_of(macro->parameters.begin(), macro->parameters.end(),
                          [name](const auto& parameter) { return parameter.first == name; });
    };
    macro->takes_varargs = takes("varargs");
    macro->takes_kwargs = takes("kwargs");
    macro->takes_caller = takes("caller");
    // As in Jinja, names that an inner macro uses also count as used by the macro around it.
    for (const std::string& name : outside) names.insert(name);
    expressions_.PutNames(std::move(names));
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Statement* statement) {
    statement->kind = Statement::Kind::kMacro;
    auto macro = std::make_unique<MacroNode>();
    ASSIGN_OR_RETURN(macro->name, stream_.ExpectName("the macro's name"));
    RETURN_IF_ERROR(ParseParameters(macro.get()));
    RETURN_IF_ERROR(ParseMacroBody("endmacro", macro.get()));
    statement->macro = std::move(macro);
    return absl::OkStatus();
  }

  absl::Status ParseCall(Statement* statement) {
    statement->kind = Statement::Kind::kCall;
    auto macro = std::make_unique<MacroNode>();
    macro->name = "caller";
    if (stream_.IsOperator("(")) RETURN_IF_ERROR(ParseParameters(macro.get()));
    ASSIGN_OR_RETURN(statement->expression, expressions_.Parse());
    if (statement->expression->kind != Expression::Kind::kCall) {
      return InvalidAt(statement->line, "a call block must call a macro: expected '(...)'");
    }
    auto caller = std::make_unique<Expression>();
    caller->kind = Expression::Kind::kName;
    caller->line = statement->line;
    caller->name = kBlockCaller;
    statement->expression->named.emplace_back("caller", std::move(caller));
    RETURN_IF_ERROR(ParseMacroBody("endcall", macro.get()));
    statement->macro = std::move(macro);
    return absl::OkStatus();
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  // number of loops around the current statement
};

}  // namespace

absl::Status TokenStream::Unexpected(absl::string_view expected) const {
  return InvalidAt(line(), absl::StrCat("expected ", expected, ", found ", Describe(Peek())));
}

absl::Status TokenStream::ExpectOperator(absl::string_view text) {
  if (TakeOperator(text)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", text, "'"));
}

absl::Status TokenStream::Expect(Token::Kind kind, absl::string_view what) {
  if (Peek().kind != kind) return Unexpected(what);
  Next();
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenStream::ExpectName(absl::string_view what) {
  if (Peek().kind != Token::Kind::kName) return Unexpected(what);
  return Next().text;
}

absl::StatusOr<Block> ParseTemplate(absl::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template has ", source.size(),
                                                   " bytes; at most ", kMaxTemplateBytes,
                                                   " are supported"));
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tidepool::engine::jinja
