// The tests of the template language, such as "x is defined".
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/unicode.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

bool IsSequence(const Value& value) {
  const List* list = value.AsList();
  return value.AsText() != nullptr || value.AsDict() != nullptr || value.IsUndefined() ||
         (list != nullptr && list->HasIndex());
}

bool IsIterable(const Value& value) {
  return value.AsText() != nullptr || value.AsDict() != nullptr || value.IsUndefined() ||
         value.AsList() != nullptr || value.AsLoop() != nullptr;
}

// Python's undefined values and loop objects have a __call__, although calling them fails.
bool IsCallable(const Value& value) {
  const Carousel* carousel = value.AsCarousel();
  return value.AsCallable() != nullptr || value.IsUndefined() || value.AsLoop() != nullptr ||
         (carousel != nullptr && carousel->is_joiner);
}

// Evaluates a test of the value's type, which has no argument. Returns nullopt if there is no such
// test.
std::optional<bool> TypeTest(absl::string_view name, const Value& value) {
  const bool is_bool = value.As<bool>() != nullptr;
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
  if (name == "sequence") return IsSequence(value);
  if (name == "iterable") return IsIterable(value);
  if (name == "callable") return IsCallable(value);
  if (name == "escaped") return false;
  return std::nullopt;
}

// Implements Python's `is`. It is false for two objects that were created separately, and true for
// equal small values, because Python shares these.
bool IsSame(const Value& value, const Value& other) {
  if (TypeName(value) != TypeName(other)) return false;
  if (value.AsList() != nullptr) return value.AsList() == other.AsList();
  if (value.AsDict() != nullptr) return value.AsDict() == other.AsDict();
  return Equals(value, other);
}

constexpr absl::string_view kTypeTests[] = {
    "defined", "undefined", "none",    "string",   "number",   "integer",  "float",  "boolean",
    "true",    "false",     "mapping", "sequence", "iterable", "callable", "escaped"};
constexpr absl::string_view kCompareTests[] = {
    "eq",       "equalto", "==", "ne", "!=", "in",          "sameas", "lt", "<",
    "lessthan", "le",      "<=", "gt", ">",  "greaterthan", "ge",     ">="};
constexpr absl::string_view kOtherTests[] = {"odd",    "even", "lower",      "upper",
                                             "filter", "test", "divisibleby"};

template <size_t kSize>
bool IsOneOf(const absl::string_view (&names)[kSize], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Evaluates a comparison with one argument.
absl::StatusOr<bool> CompareTest(absl::string_view name, const Value& value, const Value& other) {
  if (name == "eq" || name == "equalto" || name == "==") return Equals(value, other);
  if (name == "ne" || name == "!=") return !Equals(value, other);
  if (name == "in") return Contains(other, value);
  if (name == "sameas") return IsSame(value, other);
  ASSIGN_OR_RETURN(const int compared, Compare(value, other));
  if (name == "lt" || name == "<" || name == "lessthan") return compared < 0;
  if (name == "le" || name == "<=") return compared <= 0;
  if (name == "gt" || name == ">" || name == "greaterthan") return compared > 0;
  return compared >= 0;
}

// Returns whether value % divisor == remainder.
absl::StatusOr<bool> Divides(const Value& value, const Value& divisor, int64_t remainder,
                             Budget* budget) {
  if (!IsNumber(divisor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(divisor), " cannot be a divisor"));
  }
  ASSIGN_OR_RETURN(const Value rest, ApplyOperator("%", value, divisor, budget));
  return Equals(rest, Value::MakeInt(remainder));
}

// Implements str.islower and str.isupper.
bool HasCase(const Text& text, bool upper) {
  bool any = false;
  for (absl::string_view rest = text.bytes(); !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    const char32_t c = next.code_point;
    if (IsTitle(c) || (upper ? IsLower(c) : IsUpper(c))) return false;
    any = any || IsCased(c);
    rest.remove_prefix(next.size);
  }
  return any;
}

absl::StatusOr<bool> NamesFunction(const Value& value, bool (*has)(absl::string_view name)) {
  return value.AsText() != nullptr && has(value.AsText()->bytes());
}

}  // namespace

bool HasTest(absl::string_view name) {
  return IsOneOf(kTypeTests, name) || IsOneOf(kCompareTests, name) || IsOneOf(kOtherTests, name);
}

absl::StatusOr<bool> ApplyTest(absl::string_view name, const Call& call) {
  if (const std::optional<bool> result = TypeTest(name, call.self)) {
    RETURN_IF_ERROR(call.arguments.Check(name, {}));
    return *result;
  }
  if (name == "odd") return Divides(call.self, Value::MakeInt(2), 1, &call.budget);
  if (name == "even") return Divides(call.self, Value::MakeInt(2), 0, &call.budget);
  if (name == "filter") return NamesFunction(call.self, HasFilter);
  if (name == "test") return NamesFunction(call.self, HasTest);
  if (name == "lower" || name == "upper") {
    ASSIGN_OR_RETURN(const Text text, SelfText(call));
    RETURN_IF_ERROR(call.budget.Characters(text.size()));
    return HasCase(text, name == "upper");
  }
  if (!HasTest(name)) {
    return absl::UnimplementedError(absl::StrCat("the test '", name, "' is not supported"));
  }
  RETURN_IF_ERROR(call.arguments.Check(name, {"other"}));
  const Value* other = call.arguments.Find(0, "other");
  if (other == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the test '", name, "' needs an argument"));
  }
  if (name == "divisibleby") return Divides(call.self, *other, 0, &call.budget);
  RETURN_IF_ERROR(call.budget.Visit(*other));
  RETURN_IF_ERROR(call.budget.Visit(call.self));
  return CompareTest(name, call.self, *other);
}

}  // namespace tidepool::engine::jinja
