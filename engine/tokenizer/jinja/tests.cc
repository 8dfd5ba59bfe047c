// The tests of the template language: "x is defined".
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/functions.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

// Tests of a type, which take no argument. Unset: no such test.
std::optional<bool> TypeTest(absl::string_view name, const Value& value) {
  const bool is_bool = value.As<bool>() != nullptr;
  const bool has_items =
      value.AsText() != nullptr || value.AsList() != nullptr || value.AsDict() != nullptr;
  if (name == "defined") return !value.IsUndefined();
  if (name == "undefined") return value.IsUndefined();
  if (name == "none") return value.IsNone();
  if (name == "string") return value.AsText() != nullptr;
  if (name == "number") return IsNumber(value);
  if (name == "integer") return value.As<int64_t>() != nullptr;
  if (name == "float") return value.As<double>() != nullptr;
  if (name == "boolean") return is_bool;
  if (name == "true") return is_bool && *value.As<bool>();
  if (name == "false") return is_bool && !*value.As<bool>();
  if (name == "mapping") return value.AsDict() != nullptr;
  if (name == "sequence") return has_items;
  if (name == "iterable") return has_items || value.IsUndefined();
  if (name == "callable") return value.AsCallable() != nullptr;
  return std::nullopt;
}

// Comparisons with one argument. Unset: no such test.
std::optional<absl::StatusOr<bool>> CompareTest(absl::string_view name, const Value& value,
                                                const Value& other) {
  if (name == "eq" || name == "equalto" || name == "==") return Equals(value, other);
  if (name == "ne" || name == "!=") return !Equals(value, other);
  if (name == "in") return Contains(other, value);
  if (name == "sameas") {
    return TypeName(value) == TypeName(other) && Equals(value, other);
  }
  const bool less = name == "lt" || name == "<" || name == "lessthan";
  const bool less_equal = name == "le" || name == "<=";
  const bool greater = name == "gt" || name == ">" || name == "greaterthan";
  const bool greater_equal = name == "ge" || name == ">=";
  if (!less && !less_equal && !greater && !greater_equal) return std::nullopt;
  const absl::StatusOr<int> compared = Compare(value, other);
  if (!compared.ok()) return absl::StatusOr<bool>(compared.status());
  if (less) return *compared < 0;
  if (less_equal) return *compared <= 0;
  if (greater) return *compared > 0;
  return *compared >= 0;
}

absl::StatusOr<bool> Divides(const Value& value, int64_t divisor, int64_t remainder) {
  if (!IsInteger(value) || divisor == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(value), " cannot be divided by ", divisor));
  }
  if (divisor == -1) return remainder == 0;
  const int64_t rest = ToInt64(value) % divisor;
  return (rest < 0 ? rest + std::abs(divisor) : rest) == remainder;
}

// str.islower and str.isupper, for ASCII.
bool HasCase(const Text& text, bool upper) {
  const auto is = [upper](char c, bool wanted) {
    return wanted == upper ? absl::ascii_isupper(c) : absl::ascii_islower(c);
  };
  const std::string& bytes = text.bytes();
  return std::any_of(bytes.begin(), bytes.end(), [&is](char c) { return is(c, true); }) &&
         std::none_of(bytes.begin(), bytes.end(), [&is](char c) { return is(c, false); });
}

}  // namespace

absl::StatusOr<bool> ApplyTest(absl::string_view name, const Call& call) {
  if (const std::optional<bool> result = TypeTest(name, call.self)) {
    RETURN_IF_ERROR(call.arguments.Check(name, {}));
    return *result;
  }
  if (name == "odd") return Divides(call.self, 2, 1);
  if (name == "even") return Divides(call.self, 2, 0);
  if (name == "lower" || name == "upper") return HasCase(ToText(call.self), name == "upper");
  const Value none;
  const Value* other = call.arguments.Find(0, "other");
  if (other != nullptr && name == "in") RETURN_IF_ERROR(call.budget.Visit(*other));
  auto compared = CompareTest(name, call.self, other != nullptr ? *other : none);
  if (!compared.has_value() && name != "divisibleby") {
    return absl::UnimplementedError(absl::StrCat("the test '", name, "' is not supported"));
  }
  RETURN_IF_ERROR(call.arguments.Check(name, {"other"}));
  if (other == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the test '", name, "' needs an argument"));
  }
  if (compared.has_value()) return *std::move(compared);
  if (!IsInteger(*other)) return absl::InvalidArgumentError("divisibleby needs an integer");
  return Divides(call.self, ToInt64(*other), 0);
}

}  // namespace tidepool::engine::jinja
