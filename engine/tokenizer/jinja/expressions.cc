// The interpreter's expressions.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/interpreter.h"
#include "engine/tokenizer/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// An undefined value may be printed and tested, but not looked into.
absl::Status CheckDefined(const Value& value) {
  if (!value.IsUndefined()) return absl::OkStatus();
  return absl::InvalidArgumentError(value.As<Undefined>()->what);
}

Result Range(const Arguments& arguments, Budget* budget) {
  std::vector<int64_t> numbers;
  for (const Value& value : arguments.positional) {
    if (!IsInteger(value)) return absl::InvalidArgumentError("range takes integers");
    numbers.push_back(ToInt64(value));
  }
  if (numbers.empty() || numbers.size() > 3 || !arguments.named.empty()) {
    return absl::InvalidArgumentError("range takes one to three integers");
  }
  const int64_t begin = numbers.size() > 1 ? numbers[0] : 0;
  const int64_t end = numbers.size() > 1 ? numbers[1] : numbers[0];
  const int64_t step = numbers.size() > 2 ? numbers[2] : 1;
  constexpr int64_t kMaxRange = 1'000'000;
  if (step == 0) return absl::InvalidArgumentError("range's step is 0");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return absl::ResourceExhaustedError(absl::StrCat("a range of more than ", kMaxRange));
    }
    items.push_back(Value::MakeInt(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(budget->Step(static_cast<int64_t>(items.size())));
  return Value::MakeList(std::move(items));
}

// dict(a=1) and namespace(a=1), with the entries of a dict before them.
absl::StatusOr<Dict> NamedDict(const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError("dict and namespace take one dict and named arguments");
  }
  for (const Value& base : arguments.positional) {
    if (base.AsDict() == nullptr) {
      return absl::UnimplementedError("dict and namespace of anything but a dict");
    }
    dict = *base.AsDict();
  }
  for (const auto& [name, value] : arguments.named) {
    dict.Set(Text(name, TextOrigin::kTemplate), value);
  }
  return dict;
}

Result Raise(const Arguments& arguments) {
  if (arguments.positional.size() != 1) {
    return absl::InvalidArgumentError("raise_exception takes one message");
  }
  return absl::InvalidArgumentError(ToText(arguments.positional[0]).bytes());
}

Result Strftime(const Arguments& arguments, absl::Time now) {
  RETURN_IF_ERROR(arguments.Check("strftime_now", {"format"}));
  ASSIGN_OR_RETURN(const std::optional<Text> format, arguments.FindText(0, "format"));
  if (!format.has_value()) return absl::InvalidArgumentError("strftime_now needs a format");
  return Value::MakeText(absl::FormatTime(format->bytes(), now, absl::UTCTimeZone()),
                         format->origin());
}

Result Cycle(const Arguments& arguments, const LoopState& loop) {
  if (arguments.positional.empty()) return absl::InvalidArgumentError("loop.cycle needs values");
  return arguments.positional[loop.index % arguments.positional.size()];
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
  return absl::InternalError("an expression of no kind");
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
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.parts[i]));
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.parts[i + 1]));
    if (key.AsText() == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("dict keys of type ", TypeName(key), " are not supported"));
    }
    dict.Set(*key.AsText(), std::move(value));
  }
  return Value::MakeDict(std::move(dict));
}

Result Interpreter::EvaluateAttribute(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0]));
  RETURN_IF_ERROR(CheckDefined(object));
  if (HasMethod(object, expression.name)) {
    return absl::UnimplementedError(absl::StrCat("the method '", expression.name,
                                                 "' is named but not called; for a key of a ",
                                                 "dict write ['", expression.name, "']"));
  }
  return GetAttribute(object, expression.name);
}

Result Interpreter::EvaluateSubscript(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0]));
  RETURN_IF_ERROR(CheckDefined(object));
  ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.parts[1]));
  if (object.AsText() != nullptr) RETURN_IF_ERROR(budget_.Copy(object.AsText()->size()));
  return GetItem(object, key);
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
    if (!IsInteger(value)) return absl::InvalidArgumentError("a slice's bounds are integers");
    numbers[i] = ToInt64(value);
  }
  bounds = {numbers[0], numbers[1], numbers[2].value_or(1)};
  if (bounds.step == 0) return absl::InvalidArgumentError("a slice's step is 0");
  if (const Text* text = object.AsText()) {
    RETURN_IF_ERROR(budget_.Copy(text->size()));
    return Value::MakeText(SliceText(*text, bounds));
  }
  const List* list = object.AsList();
  if (list == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(object), " cannot be sliced"));
  }
  const auto indices = SliceIndices(bounds, static_cast<int64_t>(list->items.size()));
  RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(indices.size())));
  std::vector<Value> items;
  for (const int64_t i : indices) items.push_back(list->items[static_cast<size_t>(i)]);
  return list->is_tuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

Result Interpreter::EvaluateUnary(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.parts[0]));
  if (expression.name == "not") return Value::MakeBool(!value.Truthy());
  const Value zero = Value::MakeInt(0);
  // 0 - 0.0 would be 0.0: a float changes its sign by itself.
  if (const double* number = value.As<double>()) {
    return Value::MakeFloat(expression.name == "-" ? -*number : *number);
  }
  return ApplyOperator(expression.name, zero, value, &budget_);
}

Result Interpreter::EvaluateBinary(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.parts[0]));
  // Python's "and" and "or" give one of their operands.
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
    if (op == "==" || op == "!=") {
      holds = Equals(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      RETURN_IF_ERROR(budget_.Visit(right));
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
  return arguments;
}

Result Interpreter::EvaluateCall(const Expression& expression) {
  const Expression& called = *expression.parts[0];
  if (called.kind == Expression::Kind::kAttribute) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*called.parts[0]));
    RETURN_IF_ERROR(CheckDefined(object));
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
    return CallMethodOf(called, object, arguments);
  }
  ASSIGN_OR_RETURN(const Value function, Evaluate(called));
  RETURN_IF_ERROR(CheckDefined(function));
  if (function.AsCallable() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(function), " cannot be called"));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  return CallFunction(*function.AsCallable(), arguments);
}

Result Interpreter::CallMethodOf(const Expression& attribute, const Value& object,
                                 const Arguments& arguments) {
  if (object.AsLoop() != nullptr && attribute.name == "cycle") {
    return Cycle(arguments, *object.AsLoop());
  }
  if (!HasMethod(object, attribute.name)) {
    const Value held = GetAttribute(object, attribute.name);
    if (held.AsCallable() != nullptr) return CallFunction(*held.AsCallable(), arguments);
  }
  return CallMethod(attribute.name, {object, arguments, budget_});
}

Result Interpreter::CallFunction(const Callable& function, const Arguments& arguments) {
  switch (function.kind) {
    case Callable::Kind::kRange:
      return Range(arguments, &budget_);
    case Callable::Kind::kNamespace: {
      ASSIGN_OR_RETURN(Dict fields, NamedDict(arguments));
      return Value(std::make_shared<Namespace>(Namespace{std::move(fields)}));
    }
    case Callable::Kind::kDict: {
      ASSIGN_OR_RETURN(Dict dict, NamedDict(arguments));
      return Value::MakeDict(std::move(dict));
    }
    case Callable::Kind::kRaise:
      return Raise(arguments);
    case Callable::Kind::kStrftime:
      return Strftime(arguments, *options_.now);
    case Callable::Kind::kMacro:
      return CallMacro(function, arguments);
  }
  return absl::InternalError("a function of no kind");
}

}  // namespace tidepool::engine::jinja
