// The syntax tree of a template.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_AST_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template/jinja/value.h"

namespace tidepool::engine::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,      // a value in `literal`
    kName,         // a variable with the name `name`
    kList,         // parts: the items
    kTuple,        // parts: the items
    kDict,         // parts: key, value, key, value, ...
    kAttribute,    // parts[0].name
    kSubscript,    // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; omitted parts are null
    kCall,         // parts[0](parts[1..], named, *more, **more_named)
    kFilter,       // parts[0] | name(...); arguments as in kCall
    kTest,         // parts[0] is name(...); arguments as in kCall
    kUnary,        // name parts[0]; name is "-", "+" or "not"
    kBinary,       // parts[0] name parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConditional,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // depth of the tree below this node
  std::string name;
  Value literal;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more;        // *args, or null
  ExpressionPtr more_named;  // **kwargs, or null
  std::vector<std::string> operators;
};

// Names of variables that no template can contain. Statements use them to pass values to
// expressions.
inline constexpr char kBlockText[] = " text";      // the output of the body of a filter block
inline constexpr char kBlockCaller[] = " caller";  // the macro that a call block defines

struct Statement;
using Block = std::vector<Statement>;

// The target of an assignment: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  std::string name;
  std::string attribute;      // empty if the target is the name itself
  std::vector<Target> items;  // elements of a tuple; a tuple has an empty name
};

// The definition in {% macro name(parameters) %} or {% call(parameters) %}. If a parameter has no
// default, its second part is null.
struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;
  std::unique_ptr<Block> body;
  // Whether the body uses the name varargs, kwargs or caller. The macro accepts arguments of such a
  // kind only if the body uses the name.
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Statement {
  enum class Kind : uint8_t {
    kData,      // a text in `text`
    kPrint,     // prints `expression`
    kIf,        // branches and else_body
    kFor,       // for target in expression if filter: body; else: else_body
    kSet,       // target = expression
    kSetBlock,  // target = the output of body, after the filters in `filter`
    kWith,      // assignments, and the body that sees them
    kFilter,    // the output of body, after the filters in `filter`
    kMacro,     // defines `macro`
    kCall,      // evaluates `expression` with `macro` as its caller
    kDo,        // evaluates an expression and does not print it
    kGroup,     // renders `body` in a new scope
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };

  Kind kind = Kind::kData;
  int line = 1;
  bool recursive = false;  // for kFor
  std::string text;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
  Block else_body;
  std::unique_ptr<const MacroNode> macro;
};

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_AST_H_
