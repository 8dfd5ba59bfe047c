// The part of the interpreter that calls macros, loops and built-in functions.
#include <array>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/chat_template/jinja/interpreter.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result CallCarousel(Carousel* carousel, const Arguments& arguments) {
  RETURN_IF_ERROR(arguments.Check("joiner", {}));
  if (!carousel->is_joiner)
    return absl::InvalidArgumentError("a cycler cannot be called; use its next()");
  if (std::exchange(carousel->index, 1) == 0) return Value::MakeText(Text());
  return carousel->items[0];
}

// Returns nullopt if there is no such method.
std::optional<Value> CyclerMethod(Carousel* carousel, absl::string_view name) {
  if (carousel->is_joiner) return std::nullopt;
  if (name == "next") {
    const size_t at = carousel->index;
    carousel->index = (at + 1) % carousel->items.size();
    return carousel->items[at];
  }
  if (name != "reset") return std::nullopt;
  carousel->index = 0;
  return Value();
}

Result Cycle(const LoopState& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) return absl::InvalidArgumentError("loop.cycle needs values");
  return arguments.positional[loop.index % arguments.positional.size()];
}

Result Changed(LoopState* loop, const Arguments& arguments, Budget* budget) {
  for (const Value& value : arguments.positional) RETURN_IF_ERROR(budget->Visit(value));
  const bool same = loop->last_seen.has_value() && Equals(Value::MakeTuple(*loop->last_seen),
                                                          Value::MakeTuple(arguments.positional));
  loop->last_seen = arguments.positional;
  return Value::MakeBool(!same);
}

}  // namespace

Result MakeRange(const Arguments& arguments, Budget* budget) {
  std::vector<int64_t> numbers;
  for (const Value& value : arguments.positional) {
    if (!IsInteger(value)) return absl::InvalidArgumentError("range needs integers");
    numbers.push_back(ToInt64(value));
  }
  if (numbers.empty() || numbers.size() > 3 || !arguments.named.empty()) {
    return absl::InvalidArgumentError("range needs one to three integers");
  }
  const int64_t begin = numbers.size() > 1 ? numbers[0] : 0;
  const int64_t end = numbers.size() > 1 ? numbers[1] : numbers[0];
  const int64_t step = numbers.size() > 2 ? numbers[2] : 1;
  if (step == 0) return absl::InvalidArgumentError("range's step must not be 0");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a range exceeds the limit of ", kMaxRange, " items"));
    }
    items.push_back(Value::MakeInt(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(budget->Items(items.size()));
  std::string text = absl::StrCat("range(", begin, ", ", end);
  if (step != 1) absl::StrAppend(&text, ", ", step);
  return MakeSequence(std::move(items), List::Kind::kRange, absl::StrCat(text, ")"));
}

absl::StatusOr<Dict> MakeDictOf(const Arguments& arguments, Budget* budget) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError("dict and namespace accept one dict and named arguments");
  }
  for (const Value& base : arguments.positional) {
    if (base.AsDict() != nullptr) {
      RETURN_IF_ERROR(budget->Texts(base.AsDict()->size()));
      RETURN_IF_ERROR(budget->Visit(base));
      dict = *base.AsDict();
      continue;
    }
    const Arguments none;
    ASSIGN_OR_RETURN(const std::vector<Value> pairs, SelfItems({base, none, *budget}));
    for (const Value& item : pairs) {
      ASSIGN_OR_RETURN(std::vector<Value> pair, SelfItems({item, none, *budget}));
      if (pair.size() != 2)
        return absl::InvalidArgumentError("dict needs pairs of a key and a value");
      RETURN_IF_ERROR(budget->Visit(pair[0]));
      RETURN_IF_ERROR(dict.Set(std::move(pair[0]), std::move(pair[1])));
    }
  }
  RETURN_IF_ERROR(budget->Texts(arguments.named.size()));
  for (const auto& [name, value] : arguments.named) {
    dict.Set(Text(name, TextOrigin::kTemplate), value);
  }
  return dict;
}

Result MakeCycler(const Arguments& arguments) {
  const std::vector<Value>& items = arguments.positional;
  if (items.empty()) return absl::InvalidArgumentError("a cycler needs items");
  Extent extent;
  for (const Value& item : items) extent.Add(item.extent());
  return Value(
      std::make_shared<Carousel>(Carousel{.items = items, .extent = extent, .is_joiner = false}));
}

Result MakeJoiner(const Arguments& arguments) {
  RETURN_IF_ERROR(arguments.Check("joiner", {"sep"}));
  const Value* given = arguments.Find(0, "sep");
  const Value separator = given != nullptr ? *given : Value::MakeText(", ", TextOrigin::kTemplate);
  Extent extent;
  extent.Add(separator.extent());
  return Value(std::make_shared<Carousel>(
      Carousel{.items = {separator}, .extent = extent, .is_joiner = true}));
}

absl::Status RaiseException(const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("raise_exception", {"message"}));
  const Value* message = arguments.Find(0, "message");
  if (message == nullptr) return absl::InvalidArgumentError("raise_exception needs a message");
  RETURN_IF_ERROR(budget->Visit(*message));
  return absl::InvalidArgumentError(ToText(*message).bytes());
}

Result Strftime(const Arguments& arguments, absl::Time now, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("strftime_now", {"format"}));
  ASSIGN_OR_RETURN(const std::optional<Text> format, arguments.FindText(0, "format"));
  if (!format.has_value()) return absl::InvalidArgumentError("strftime_now needs a format");
  constexpr size_t kMaxFormat = 1000;
  if (format->size() > kMaxFormat) {
    return absl::ResourceExhaustedError(
        absl::StrCat("strftime_now's format is longer than ", kMaxFormat, " bytes"));
  }
  RETURN_IF_ERROR(budget->Copy(format->size()));
  // Replace the fields that differ from C's strftime: Python's %Z is empty for a time without a
  // zone, and only Python has %f (microseconds).
  const auto parts = absl::UTCTimeZone().At(now);
  const std::string micros = absl::StrFormat("%06d", absl::ToInt64Microseconds(parts.subsecond));
  const std::string known =
      absl::StrReplaceAll(format->bytes(), {{"%%", "%%"}, {"%f", micros}, {"%z", ""}, {"%Z", ""}});
  if (known.empty()) return Value::MakeText(Text());
  const std::tm time = absl::ToTM(now, absl::UTCTimeZone());
  // strftime returns 0 if the result is empty or does not fit. The added blank makes sure that the
  // result is not empty. A field needs much less than 64 bytes.
  std::string result(64 * known.size() + 2, '\0');
  result.resize(std::strftime(result.data(), result.size(), (known + " ").c_str(), &time));
  if (!result.empty()) result.pop_back();
  return Value::MakeText(result, format->origin());
}

Result Interpreter::CallValue(const Value& function, const Arguments& arguments) {
  if (function.IsUndefined()) return absl::InvalidArgumentError(*function.As<Undefined>()->what);
  if (const Callable* callable = function.AsCallable()) return CallFunction(*callable, arguments);
  if (const LoopState* loop = function.AsLoop()) return CallLoop(*loop, arguments);
  if (Carousel* carousel = function.AsCarousel()) return CallCarousel(carousel, arguments);
  return absl::InvalidArgumentError(
      absl::StrCat("a value of type ", TypeName(function), " cannot be called"));
}

Result Interpreter::CallMethodOf(const std::string& name, const Value& object,
                                 const Arguments& arguments) {
  if (LoopState* loop = object.AsLoop()) {
    if (name == "cycle") return Cycle(*loop, arguments);
    if (name == "changed") return Changed(loop, arguments, &budget_);
  }
  if (Carousel* carousel = object.AsCarousel()) {
    if (std::optional<Value> result = CyclerMethod(carousel, name)) return *std::move(result);
  }
  if (!HasMethod(object, name)) {
    const Value held = GetAttribute(object, name);
    if (!held.IsUndefined()) return CallValue(held, arguments);
  }
  return CallMethod(name, {object, arguments, budget_});
}

Result Interpreter::CallFunction(const Callable& function, const Arguments& arguments) {
  switch (function.kind) {
    case Callable::Kind::kRange:
      return MakeRange(arguments, &budget_);
    case Callable::Kind::kNamespace:
      return MakeNamespace(arguments);
    case Callable::Kind::kDict: {
      ASSIGN_OR_RETURN(Dict dict, MakeDictOf(arguments, &budget_));
      return Value::MakeDict(std::move(dict));
    }
    case Callable::Kind::kCycler:
      return MakeCycler(arguments);
    case Callable::Kind::kJoiner:
      return MakeJoiner(arguments);
    case Callable::Kind::kRaise:
      return RaiseException(arguments, &budget_);
    case Callable::Kind::kStrftime:
      return Strftime(arguments, *options_.now, &budget_);
    case Callable::Kind::kMacro:
      return CallMacro(function, arguments);
    case Callable::Kind::kMethod:
      return CallMethodOf(function.name, function.self, arguments);
  }
  return absl::InternalError("unknown kind of function");
}

Result Interpreter::MakeMacro(const MacroNode& macro) {
  RETURN_IF_ERROR(Capture(frame_));
  return Value(std::make_shared<const Callable>(
      Callable{Callable::Kind::kMacro, &macro, frame_, Value(), macro.name}));
}

absl::Status Interpreter::BindParameters(const MacroNode& macro, const Arguments& arguments) {
  const size_t size = macro.parameters.size();
  // Each named argument is compared with the parameters, and each parameter with the named
  // arguments. This number of comparisons costs one step of the budget.
  constexpr size_t kNamesPerStep = 16;
  RETURN_IF_ERROR(
      budget_.Step(static_cast<int64_t>(size + size * arguments.named.size() / kNamesPerStep)));
  Arguments left;  // arguments for which there is no parameter
  for (size_t i = size; i < arguments.positional.size(); ++i) {
    left.positional.push_back(arguments.positional[i]);
  }
  for (const auto& [name, value] : arguments.named) {
    bool taken = macro.takes_caller && name == "caller";
    for (size_t i = arguments.positional.size(); i < size; ++i) {
      taken = taken || macro.parameters[i].first == name;
    }
    if (!taken) left.named.emplace_back(name, value);
  }
  if (!left.positional.empty() && !macro.takes_varargs) {
    return absl::InvalidArgumentError(absl::StrCat("the macro '", macro.name, "' takes ", size,
                                                   " arguments, not ",
                                                   arguments.positional.size()));
  }
  if (!left.named.empty() && !macro.takes_kwargs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the macro '", macro.name, "' takes no argument '", left.named[0].first, "' here"));
  }
  for (size_t i = 0; i < size; ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const Value* given = arguments.Find(i, name);
    Value value = Value::MakeUndefined(
        absl::StrCat("the macro '", macro.name, "' got no argument '", name, "'"));
    if (given != nullptr) {
      value = *given;
    } else if (fallback != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*fallback));
    }
    SetVariable(name, std::move(value));
  }
  if (macro.takes_caller) {
    const Value* caller = arguments.Find(arguments.positional.size(), "caller");
    SetVariable("caller", caller != nullptr ? *caller : Value::MakeUndefined("no caller defined"));
  }
  if (macro.takes_varargs) SetVariable("varargs", Value::MakeTuple(std::move(left.positional)));
  if (macro.takes_kwargs) {
    Dict named;
    for (auto& [name, value] : left.named) named.Set(Text(name, TextOrigin::kTemplate), value);
    SetVariable("kwargs", Value::MakeDict(std::move(named)));
  }
  return absl::OkStatus();
}

Result Interpreter::CallMacro(const Callable& function, const Arguments& arguments) {
  const MacroNode& macro = *function.macro;
  // A macro uses the variables of the scope in which it was defined, not those of its caller.
  const Scope scope(this, function.frame);
  RETURN_IF_ERROR(BindParameters(macro, arguments));
  Text text;
  ASSIGN_OR_RETURN(const Flow flow, Execute(*macro.body, &text));
  CHECK(flow == Flow::kNormal);
  RETURN_IF_ERROR(budget_.Grow(text.size()));
  return Value::MakeText(std::move(text));
}

Result Interpreter::CallLoop(const LoopState& loop, const Arguments& arguments) {
  if (loop.recursive == nullptr) {
    return absl::InvalidArgumentError("a loop that calls itself must be declared 'recursive'");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return absl::InvalidArgumentError("a recursive loop accepts one sequence");
  }
  // The parent scope is the one around the loop, not that of the iteration that makes the call.
  const std::shared_ptr<Frame> around = loop.frame;
  const Statement& statement = *loop.recursive;
  const size_t depth = loop.depth + 1;
  const Scope scope(this, around);
  Text text;
  RETURN_IF_ERROR(RunLoop(statement, arguments.positional[0], depth, &text).status());
  RETURN_IF_ERROR(budget_.Grow(text.size()));
  return Value::MakeText(std::move(text));
}

}  // namespace tidepool::engine::jinja
