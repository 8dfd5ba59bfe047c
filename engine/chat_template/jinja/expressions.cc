// The part of the interpreter that evaluates expressions.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/interpreter.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Returns an error if a value is undefined. Such a value may be printed and tested, but it has no
// attributes and items.
absl::Status CheckDefined(const Value& value) {
  if (!value.IsUndefined()) return absl::OkStatus();
  return absl::InvalidArgumentError(*value.As<Undefined>()->what);
}

// Evaluates `value.name`. Methods have precedence over attributes.
Result Attribute(const Value& object, const std::string& name) {
  if (!HasMethod(object, name)) return GetAttribute(object, name);
  return Value(std::make_shared<const Callable>(
      Callable{Callable::Kind::kMethod, nullptr, nullptr, object, name}));
}

}  // namespace

Result Interpreter::EvaluateKind(const Expression& expression) {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.literal;
    case Kind::kName:
      return Lookup(expression.name);
    case Kind::kList: {
      ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(expression));
      return Value::MakeList(std::move(items));
    }
    case Kind::kTuple: {
      ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(expression));
      return Value::MakeTuple(std::move(items));
    }
    case Kind::kDict:
      return EvaluateDict(expression);
    case Kind::kAttribute:
      return EvaluateAttribute(expression);
    case Kind::kSubscript:
      return EvaluateSubscript(expression);
    case Kind::kSlice:
      return EvaluateSlice(expression);
    case Kind::kCall:
      return EvaluateCall(expression);
    case Kind::kFilter: {
      ASSIGN_OR_RETURN(const Value self, Evaluate(*expression.parts[0]));
      ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
      return ApplyFilter(expression.name, {self, arguments, budget_});
    }
    case Kind::kTest: {
      ASSIGN_OR_RETURN(const Value self, Evaluate(*expression.parts[0]));
      ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
      ASSIGN_OR_RETURN(const bool passes, ApplyTest(expression.name, {self, arguments, budget_}));
      return Value::MakeBool(passes);
    }
    case Kind::kUnary:
      return EvaluateUnary(expression);
    case Kind::kBinary:
      return EvaluateBinary(expression);
    case Kind::kCompare:
      return EvaluateCompare(expression);
    case Kind::kConditional:
      return EvaluateConditional(expression);
  }
  return absl::InternalError("unknown kind of expression");
}

absl::StatusOr<std::vector<Value>> Interpreter::EvaluateAll(const Expression& expression) {
  std::vector<Value> values;
  for (const ExpressionPtr& part : expression.parts) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*part));
    values.push_back(std::move(value));
  }
  return values;
}

Result Interpreter::EvaluateDict(const Expression& expression) {
  RETURN_IF_ERROR(budget_.Texts(expression.parts.size() / 2));
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Evaluate(*expression.parts[i]));
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.parts[i + 1]));
    RETURN_IF_ERROR(budget_.Visit(key));
    RETURN_IF_ERROR(dict.Set(std::move(key), std::move(value)));
  }
  return Value::MakeDict(std::move(dict));
}

Result Interpreter::EvaluateAttribute(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0]));
  RETURN_IF_ERROR(CheckDefined(object));
  return Attribute(object, expression.name);
}

Result Interpreter::EvaluateSubscript(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0]));
  RETURN_IF_ERROR(CheckDefined(object));
  ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.parts[1]));
  RETURN_IF_ERROR(budget_.Index(object));
  RETURN_IF_ERROR(budget_.Visit(key));
  ASSIGN_OR_RETURN(Value item, GetItem(object, key));
  // If there is no item with this key, the key may be the name of an attribute.
  if (item.IsUndefined() && key.AsText() != nullptr) {
    return Attribute(object, key.AsText()->bytes());
  }
  return item;
}

Result Interpreter::EvaluateSlice(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0]));
  RETURN_IF_ERROR(CheckDefined(object));
  SliceBounds bounds;
  std::optional<int64_t> numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExpressionPtr& part = expression.parts[i + 1];
    if (part == nullptr) continue;
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    if (value.IsNone()) continue;
    if (!IsInteger(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a slice's bounds must be integers, not ", TypeName(value)));
    }
    numbers[i] = ToInt64(value);
  }
  bounds = {numbers[0], numbers[1], numbers[2].value_or(1)};
  if (bounds.step == 0) return absl::InvalidArgumentError("a slice's step must not be 0");
  if (const Text* text = object.AsText()) {
    RETURN_IF_ERROR(budget_.Characters(text->size()));
    // If the step is not 1, characters are copied one by one.
    if (bounds.step != 1) RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(text->size())));
    return Value::MakeText(SliceText(*text, bounds));
  }
  const List* list = object.AsList();
  if (list == nullptr || !list->HasIndex()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(object), " cannot be sliced"));
  }
  const auto indices = SliceIndices(bounds, static_cast<int64_t>(list->items.size()));
  RETURN_IF_ERROR(budget_.Items(indices.size()));
  std::vector<Value> items;
  for (const int64_t i : indices) items.push_back(list->items[static_cast<size_t>(i)]);
  return list->IsTuple() ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

Result Interpreter::EvaluateUnary(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.parts[0]));
  if (expression.name == "not") return Value::MakeBool(!value.Truthy());
  // Negate floats directly, because 0 - 0.0 is 0.0 and not -0.0.
  if (const double* number = value.As<double>()) {
    return Value::MakeFloat(expression.name == "-" ? -*number : *number);
  }
  return ApplyOperator(expression.name, Value::MakeInt(0), value, &budget_);
}

Result Interpreter::EvaluateBinary(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.parts[0]));
  // As in Python, "and" and "or" return one of their operands.
  if (expression.name == "and" && !left.Truthy()) return left;
  if (expression.name == "or" && left.Truthy()) return left;
  ASSIGN_OR_RETURN(Value right, Evaluate(*expression.parts[1]));
  if (expression.name == "and" || expression.name == "or") return right;
  return ApplyOperator(expression.name, left, right, &budget_);
}

Result Interpreter::EvaluateCompare(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.parts[0]));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& op = expression.operators[i];
    ASSIGN_OR_RETURN(Value right, Evaluate(*expression.parts[i + 1]));
    bool holds = false;
    RETURN_IF_ERROR(budget_.Visit(right));
    if (op == "==" || op == "!=") {
      holds = Equals(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      RETURN_IF_ERROR(budget_.Visit(left));
      ASSIGN_OR_RETURN(const bool contains, Contains(right, left));
      holds = contains == (op == "in");
    } else {
      ASSIGN_OR_RETURN(const int order, Compare(left, right));
      holds = op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
    }
    if (!holds) return Value::MakeBool(false);
    left = std::move(right);
  }
  return Value::MakeBool(true);
}

Result Interpreter::EvaluateConditional(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.parts[0]));
  if (condition.Truthy()) return Evaluate(*expression.parts[1]);
  if (expression.parts[2] != nullptr) return Evaluate(*expression.parts[2]);
  return Value::MakeUndefined("the inline if has no else, and its condition is false");
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expression& expression) {
  Arguments arguments;
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.parts[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, part] : expression.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*part));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (expression.more != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*expression.more));
    RETURN_IF_ERROR(CheckDefined(more));
    const Arguments none;
    ASSIGN_OR_RETURN(const std::vector<Value> items, SelfItems({more, none, budget_}));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (expression.more_named != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*expression.more_named));
    if (more.AsDict() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("** needs a dict, not a value of type ", TypeName(more)));
    }
    RETURN_IF_ERROR(budget_.Texts(more.AsDict()->size()));
    RETURN_IF_ERROR(budget_.Visit(more));
    for (const auto& [key, value] : more.AsDict()->entries()) {
      if (key.AsText() == nullptr) return absl::InvalidArgumentError("** needs keys of strings");
      arguments.named.emplace_back(key.AsText()->bytes(), value);
    }
  }
  return arguments;
}

Result Interpreter::EvaluateCall(const Expression& expression) {
  const Expression& called = *expression.parts[0];
  if (called.kind == Expression::Kind::kAttribute) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*called.parts[0]));
    RETURN_IF_ERROR(CheckDefined(object));
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
    return CallMethodOf(called.name, object, arguments);
  }
  ASSIGN_OR_RETURN(const Value function, Evaluate(called));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  return CallValue(function, arguments);
}

}  // namespace tidepool::engine::jinja
