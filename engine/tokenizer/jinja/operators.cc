#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/interpreter.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status NoOperator(absl::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->IsUndefined()) return absl::InvalidArgumentError(value->As<Undefined>()->what);
  }
  if (op == "%" && left.AsText() != nullptr) {
    return absl::UnimplementedError("formatting strings with '%' is not supported");
  }
  return absl::InvalidArgumentError(absl::StrCat("'", op,
                                                 "' does not work between values of types ",
                                                 TypeName(left), " and ", TypeName(right)));
}

absl::Status TooLarge() { return absl::InvalidArgumentError("an integer does not fit in 64 bits"); }

Result Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  // Bases that never overflow would go on for ever.
  if (base == 0 || base == 1) return Value::MakeInt(exponent == 0 ? 1 : base);
  if (base == -1) return Value::MakeInt(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value::MakeInt(result);
}

// Division and remainder round towards minus infinity, as Python's do.
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
    return Value::MakeFloat(std::pow(static_cast<double>(left), static_cast<double>(right)));
  } else {
    return DivideIntegers(op, left, right);
  }
  if (overflow) return TooLarge();
  return Value::MakeInt(result);
}

Result ApplyToFloats(absl::string_view op, double left, double right) {
  if (op == "+") return Value::MakeFloat(left + right);
  if (op == "-") return Value::MakeFloat(left - right);
  if (op == "*") return Value::MakeFloat(left * right);
  if (op == "**") return Value::MakeFloat(std::pow(left, right));
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (op == "/") return Value::MakeFloat(left / right);
  const double quotient = std::floor(left / right);
  return Value::MakeFloat(op == "//" ? quotient : left - quotient * right);
}

Result Repeat(const Text& text, int64_t times, Budget* budget) {
  times = std::max<int64_t>(times, 0);
  // Keeps the product below in range.
  constexpr int64_t kMaxTimes = int64_t{1} << 31;
  if (times > kMaxTimes) return absl::ResourceExhaustedError("a string is repeated too often");
  RETURN_IF_ERROR(budget->Copy(text.size() * static_cast<size_t>(times)));
  RETURN_IF_ERROR(budget->Step(times));
  Text result;
  for (int64_t i = 0; i < times; ++i) result.Append(text);
  return Value::MakeText(std::move(result));
}

}  // namespace

Result ApplyOperator(absl::string_view op, const Value& left, const Value& right, Budget* budget) {
  if (op == "~" || (op == "+" && left.AsText() != nullptr && right.AsText() != nullptr)) {
    Text result = ToText(left);
    const Text printed = right.AsText() == nullptr ? ToText(right) : Text();
    const Text& tail = right.AsText() == nullptr ? printed : *right.AsText();
    RETURN_IF_ERROR(budget->Copy(result.size() + tail.size()));
    result.Append(tail);
    return Value::MakeText(std::move(result));
  }
  if (op == "+" && left.AsList() != nullptr && right.AsList() != nullptr) {
    std::vector<Value> items = left.AsList()->items;
    const std::vector<Value>& tail = right.AsList()->items;
    RETURN_IF_ERROR(budget->Step(static_cast<int64_t>(items.size() + tail.size())));
    items.insert(items.end(), tail.begin(), tail.end());
    return Value::MakeList(std::move(items));
  }
  if (op == "*" && left.AsText() != nullptr && IsInteger(right)) {
    return Repeat(*left.AsText(), ToInt64(right), budget);
  }
  if (IsInteger(left) && IsInteger(right))
    return ApplyToIntegers(op, ToInt64(left), ToInt64(right));
  if (IsNumber(left) && IsNumber(right)) return ApplyToFloats(op, ToDouble(left), ToDouble(right));
  return NoOperator(op, left, right);
}

}  // namespace tidepool::engine::jinja
