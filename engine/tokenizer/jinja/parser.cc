#include "engine/tokenizer/jinja/parser.h"

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

// Parses tags. Thread-compatible.
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

  // Statements up to a tag of one of these names, whose "{%" is taken and whose name is next; up to
  // the end of the source when there are none.
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

  // The end of the tag, its block, and the closing tag.
  absl::Status ParseBody(absl::string_view end, Block* block) {
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(ParseUntil({end}, block));
    stream_.Next();
    return absl::OkStatus();
  }

  absl::Status ParseTag(Statement* statement) {
    ASSIGN_OR_RETURN(const std::string name, stream_.ExpectName("a tag's name"));
    if (name == "if") return ParseIf(statement);
    if (name == "for") return ParseFor(statement);
    if (name == "set") return ParseSet(statement);
    if (name == "macro") return ParseMacro(statement);
    if (name == "generation") {
      // Marks what an assistant wrote, for training.
      statement->kind = Statement::Kind::kGroup;
      RETURN_IF_ERROR(ParseBody("endgeneration", &statement->body));
      return EndTag();
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return InvalidAt(statement->line, absl::StrCat(name, " outside of a loop"));
      statement->kind = name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      return EndTag();
    }
    for (const absl::string_view known :
         {"block", "call", "do", "extends", "filter", "from", "import", "include", "with"}) {
      if (name == known) {
        return UnimplementedAt(statement->line,
                               absl::StrCat("the tag '", name, "' is not supported"));
      }
    }
    return InvalidAt(statement->line, absl::StrCat("there is no tag '", name, "' here"));
  }

  absl::Status ParseIf(Statement* statement) {
    statement->kind = Statement::Kind::kIf;
    while (true) {
      Statement::Branch& branch = statement->branches.emplace_back();
      ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple());
      RETURN_IF_ERROR(EndTag());
      RETURN_IF_ERROR(ParseUntil({"elif", "else", "endif"}, &branch.body));
      if (!stream_.TakeName("elif")) break;
    }
    if (stream_.TakeName("else")) {
      RETURN_IF_ERROR(ParseBody("endif", &statement->else_body));
    } else {
      stream_.Next();
    }
    return EndTag();
  }

  absl::Status ParseFor(Statement* statement) {
    statement->kind = Statement::Kind::kFor;
    RETURN_IF_ERROR(ParseTargets(statement));
    if (!stream_.TakeName("in")) return stream_.Unexpected("'in'");
    ASSIGN_OR_RETURN(statement->expression, expressions_.ParseWithoutCondition());
    if (stream_.TakeName("if")) {
      ASSIGN_OR_RETURN(statement->filter, expressions_.Parse());
    }
    if (stream_.IsName("recursive")) {
      return UnimplementedAt(statement->line, "recursive loops are not supported");
    }
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    RETURN_IF_ERROR(ParseUntil({"else", "endfor"}, &statement->body));
    --loops_;
    if (stream_.TakeName("else")) {
      RETURN_IF_ERROR(ParseBody("endfor", &statement->else_body));
    } else {
      stream_.Next();
    }
    return EndTag();
  }

  // a, b, (c)
  absl::Status ParseTargets(Statement* statement) {
    const bool bracket = stream_.TakeOperator("(");
    do {
      ASSIGN_OR_RETURN(std::string name, stream_.ExpectName("a variable's name"));
      statement->targets.push_back(std::move(name));
    } while (stream_.TakeOperator(","));
    return bracket ? stream_.ExpectOperator(")") : absl::OkStatus();
  }

  absl::Status ParseSet(Statement* statement) {
    RETURN_IF_ERROR(ParseTargets(statement));
    if (statement->targets.size() == 1 && stream_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(statement->attribute, stream_.ExpectName("an attribute's name"));
    }
    if (stream_.TakeOperator("=")) {
      statement->kind = Statement::Kind::kSet;
      ASSIGN_OR_RETURN(statement->expression, expressions_.ParseTuple());
      return EndTag();
    }
    statement->kind = Statement::Kind::kSetBlock;
    if (stream_.IsOperator("|")) {
      return UnimplementedAt(statement->line, "filters on {% set %} blocks are not supported");
    }
    if (statement->targets.size() != 1) return stream_.Unexpected("'='");
    RETURN_IF_ERROR(ParseBody("endset", &statement->body));
    return EndTag();
  }

  absl::Status ParseMacro(Statement* statement) {
    statement->kind = Statement::Kind::kMacro;
    auto macro = std::make_shared<MacroNode>();
    ASSIGN_OR_RETURN(macro->name, stream_.ExpectName("the macro's name"));
    RETURN_IF_ERROR(stream_.ExpectOperator("("));
    while (!stream_.IsOperator(")")) {
      ASSIGN_OR_RETURN(std::string parameter, stream_.ExpectName("a parameter's name"));
      ExpressionPtr fallback;
      if (stream_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(fallback, expressions_.Parse());
      }
      macro->parameters.emplace_back(std::move(parameter), std::move(fallback));
      if (!stream_.TakeOperator(",")) break;
    }
    RETURN_IF_ERROR(stream_.ExpectOperator(")"));
    macro->body = std::make_unique<Block>();
    const int loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(ParseBody("endmacro", macro->body.get()));
    loops_ = loops;
    statement->macro = std::move(macro);
    return EndTag();
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  // that are open here
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
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tidepool::engine::jinja
