// The parsed template.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_JINJA_AST_H_
#define TIDEPOOL_ENGINE_TOKENIZER_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/value.h"

namespace tidepool::engine::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,      // literal
    kName,         // name
    kList,         // parts
    kTuple,        // parts
    kDict,         // parts: key, value, key, value, ...
    kAttribute,    // parts[0].name
    kSubscript,    // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; null: left out
    kCall,         // parts[0](parts[1..], named)
    kFilter,       // parts[0] | name(parts[1..], named)
    kTest,         // parts[0] is name(parts[1..], named)
    kUnary,        // name ("-", "+", "not") parts[0]
    kBinary,       // parts[0] name parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConditional,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // of the tree below
  std::string name;
  Value literal;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

// {% macro name(parameters) %}. A parameter without a default has null.
struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;
  std::unique_ptr<Block> body;
};

struct Statement {
  enum class Kind : uint8_t {
    kData,      // text
    kPrint,     // expression
    kIf,        // branches, else_body
    kFor,       // targets in expression (if filter): body, else_body
    kSet,       // targets (attribute: of a namespace) = expression
    kSetBlock,  // targets[0] = what body prints
    kMacro,     // macro
    kGroup,     // body, in place
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };

  Kind kind = Kind::kData;
  int line = 1;
  std::string text;
  std::vector<std::string> targets;
  std::string attribute;
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<Branch> branches;
  Block body;
  Block else_body;
  std::shared_ptr<const MacroNode> macro;
};

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_TOKENIZER_JINJA_AST_H_
