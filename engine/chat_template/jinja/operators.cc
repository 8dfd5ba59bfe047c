// The operators of expressions.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status NoOperator(absl::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->IsUndefined()) return absl::InvalidArgumentError(*value->As<Undefined>()->what);
  }
  return absl::InvalidArgumentError(absl::StrCat("'", op, "' does not work on values of types ",
                                                 TypeName(left), " and ", TypeName(right)));
}

absl::Status TooLarge() { return absl::InvalidArgumentError("an integer does not fit in 64 bits"); }

Result Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  // Powers of these bases never overflow, so the loop below would run for too long.
  if (base == 0 || base == 1) return Value::MakeInt(exponent == 0 ? 1 : base);
  if (base == -1) return Value::MakeInt(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value::MakeInt(result);
}

// As in Python, the quotient is rounded towards minus infinity.
Result DivideIntegers(absl::string_view op, int64_t left, int64_t right) {
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (op == "/") return Value::MakeFloat(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {
    int64_t negative = 0;
    if (op == "%") return Value::MakeInt(0);
    if (__builtin_sub_overflow(0, left, &negative)) return TooLarge();
    return Value::MakeInt(negative);
  }
  const int64_t rest = left % right;
  const bool adjust = rest != 0 && (rest < 0) != (right < 0);
  if (op == "%") return Value::MakeInt(adjust ? rest + right : rest);
  return Value::MakeInt(left / right - (adjust ? 1 : 0));
}

Result ApplyToIntegers(absl::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (op == "**") {
    if (right >= 0) return Power(left, right);
    if (left == 0) return absl::InvalidArgumentError("division by zero");
    return Value::MakeFloat(std::pow(static_cast<double>(left), static_cast<double>(right)));
  } else {
    return DivideIntegers(op, left, right);
  }
  if (overflow) return TooLarge();
  return Value::MakeInt(result);
}

// As in Python's float_divmod, the remainder has the sign of the divisor.
Result DivideFloats(absl::string_view op, double left, double right) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0 && (right < 0) != (rest < 0)) {
    rest += right;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, right);
  }
  if (op == "%") return Value::MakeFloat(rest);
  if (quotient == 0) return Value::MakeFloat(std::copysign(0.0, left / right));
  const double floor = std::floor(quotient);
  return Value::MakeFloat(quotient - floor > 0.5 ? floor + 1 : floor);
}

Result ApplyToFloats(absl::string_view op, double left, double right) {
  if (op == "+") return Value::MakeFloat(left + right);
  if (op == "-") return Value::MakeFloat(left - right);
  if (op == "*") return Value::MakeFloat(left * right);
  if (op == "**") {
    if (left == 0 && right < 0) return absl::InvalidArgumentError("division by zero");
    const double power = std::pow(left, right);
    if (std::isnan(power) && !std::isnan(left) && !std::isnan(right)) {
      return absl::InvalidArgumentError("a root of a negative number is not a float");
    }
    if (std::isinf(power) && std::isfinite(left) && std::isfinite(right)) {
      return absl::InvalidArgumentError("a power does not fit in a float");
    }
    return Value::MakeFloat(power);
  }
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (op == "/") return Value::MakeFloat(left / right);
  return DivideFloats(op, left, right);
}

// Returns a repetition count. It is limited so that its product with a size does not overflow.
absl::StatusOr<size_t> RepeatCount(const Value& times) {
  constexpr int64_t kMaxTimes = int64_t{1} << 31;
  const int64_t count = std::max<int64_t>(ToInt64(times), 0);
  if (count <= kMaxTimes) return static_cast<size_t>(count);
  return absl::ResourceExhaustedError(
      absl::StrCat("a value is repeated ", count, " times; the limit is ", kMaxTimes));
}

Result RepeatText(const Text& text, const Value& times, Budget* budget) {
  ASSIGN_OR_RETURN(const size_t count, RepeatCount(times));
  RETURN_IF_ERROR(budget->Grow(text.size() * count));
  RETURN_IF_ERROR(budget->Step(static_cast<int64_t>(text.empty() ? 0 : count)));
  Text result;
  for (size_t i = 0; i < count && !text.empty(); ++i) result.Append(text);
  return Value::MakeText(std::move(result));
}

Result RepeatList(const List& list, const Value& times, Budget* budget) {
  ASSIGN_OR_RETURN(const size_t count, RepeatCount(times));
  RETURN_IF_ERROR(budget->Items(list.items.size() * count));
  std::vector<Value> items;
  for (size_t i = 0; i < count && !list.items.empty(); ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return list.IsTuple() ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

bool IsRepeatable(const Value& value) {
  const List* list = value.AsList();
  return value.AsText() != nullptr ||
         (list != nullptr && (list->IsTuple() || list->kind == List::Kind::kList));
}

Result Concatenate(const List& left, const List& right, Budget* budget) {
  RETURN_IF_ERROR(budget->Items(left.items.size() + right.items.size()));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return left.IsTuple() ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

Result JoinTexts(const Value& left, const Value& right, Budget* budget) {
  const Arguments none;
  ASSIGN_OR_RETURN(Text result, SelfText({left, none, *budget}));
  ASSIGN_OR_RETURN(const Text tail, SelfText({right, none, *budget}));
  RETURN_IF_ERROR(budget->Grow(result.size() + tail.size()));
  result.Append(tail);
  return Value::MakeText(std::move(result));
}

}  // namespace

Result ApplyOperator(absl::string_view op, const Value& left, const Value& right, Budget* budget) {
  if (op == "~" || (op == "+" && left.AsText() != nullptr && right.AsText() != nullptr)) {
    return JoinTexts(left, right, budget);
  }
  if (op == "%" && left.AsText() != nullptr) return FormatPercent(*left.AsText(), right, budget);
  const List* list = left.AsList();
  if (op == "+" && list != nullptr && right.AsList() != nullptr && IsRepeatable(left) &&
      IsRepeatable(right) && list->IsTuple() == right.AsList()->IsTuple()) {
    return Concatenate(*list, *right.AsList(), budget);
  }
  if (op == "*" && (IsInteger(left) || IsInteger(right))) {
    const Value& repeated = IsInteger(left) ? right : left;
    const Value& times = IsInteger(left) ? left : right;
    if (repeated.AsText() != nullptr) return RepeatText(*repeated.AsText(), times, budget);
    if (IsRepeatable(repeated)) return RepeatList(*repeated.AsList(), times, budget);
  }
  if (IsInteger(left) && IsInteger(right)) {
    return ApplyToIntegers(op, ToInt64(left), ToInt64(right));
  }
  if (IsNumber(left) && IsNumber(right)) return ApplyToFloats(op, ToDouble(left), ToDouble(right));
  return NoOperator(op, left, right);
}

}  // namespace tidepool::engine::jinja
