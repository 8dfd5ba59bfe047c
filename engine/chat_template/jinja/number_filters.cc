// Filters for numbers, such as int and round.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status NoNumber(absl::string_view filter, const Value& value) {
  if (value.IsUndefined()) return absl::InvalidArgumentError(*value.As<Undefined>()->what);
  return absl::InvalidArgumentError(absl::StrCat(
      "the filter '", filter, "' needs a number, not a value of type ", TypeName(value)));
}

// Removes underscores between two digits, which Python allows. Returns nullopt if there are other
// underscores.
std::optional<std::string> DropUnderscores(absl::string_view digits) {
  std::string kept;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      kept.push_back(digits[i]);
    } else if (i == 0 || i + 1 == digits.size() || !absl::ascii_isalnum(digits[i - 1]) ||
               !absl::ascii_isalnum(digits[i + 1])) {
      return std::nullopt;
    }
  }
  return kept;
}

// Implements `float(text)`. Returns nullopt if the text is not a float.
std::optional<double> ReadFloat(const Text& text) {
  const auto digits = DropUnderscores(Strip(text, Side::kBoth, std::nullopt).bytes());
  double number = 0;
  // absl::SimpleAtod accepts hexadecimal numbers, but Python does not.
  if (!digits.has_value() || digits->find_first_of("xX") != std::string::npos) return std::nullopt;
  if (!absl::SimpleAtod(*digits, &number)) return std::nullopt;
  return number;
}

// Implements `int(text, base)`. Returns nullopt if the text is not an integer, or if it does not
// fit into 64 bits.
std::optional<int64_t> ReadInt(const Text& text, int64_t base) {
  const auto kept = DropUnderscores(Strip(text, Side::kBoth, std::nullopt).bytes());
  if (!kept.has_value()) return std::nullopt;
  std::string digits = *kept;
  const bool negative = absl::StartsWith(digits, "-");
  if (negative || absl::StartsWith(digits, "+")) digits.erase(0, 1);
  const char kind = digits.size() > 2 && digits[0] == '0' ? absl::ascii_tolower(digits[1]) : '0';
  const int prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  if (prefixed != 0 && (base == prefixed || base == 0)) {
    base = prefixed;
    digits.erase(0, 2);
  }
  if (base == 0) base = 10;
  if (digits.empty() || !absl::ascii_isalnum(digits[0])) return std::nullopt;
  errno = 0;
  char* end = nullptr;
  const std::string text_of = absl::StrCat(negative ? "-" : "", digits);
  const int64_t value = std::strtoll(text_of.c_str(), &end, static_cast<int>(base));
  if (errno != 0 || *end != '\0') return std::nullopt;
  return value;
}

Result ToInt(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("int", {"default", "base"}));
  const Value* fallback = call.arguments.Find(0, "default");
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(1, "base"));
  const int64_t base = given.value_or(10);
  constexpr int64_t kMaxBase = 36;
  if (base < 0 || base == 1 || base > kMaxBase) {
    return absl::InvalidArgumentError("int's base must be 0 or 2 to 36");
  }
  if (IsInteger(call.self)) return Value::MakeInt(ToInt64(call.self));
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const double* self = call.self.As<double>()) number = *self;
  if (const Text* text = call.self.AsText()) {
    RETURN_IF_ERROR(call.budget.Copy(text->size()));
    if (const auto integer = ReadInt(*text, base)) return Value::MakeInt(*integer);
    number = ReadFloat(*text).value_or(number);
  }
  if (call.self.IsUndefined()) return NoNumber("int", call.self);
  constexpr double kLimit = 9.2e18;
  if (std::abs(number) < kLimit) return Value::MakeInt(static_cast<int64_t>(number));
  return fallback != nullptr ? *fallback : Value::MakeInt(0);
}

Result ToFloat(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("float", {"default"}));
  const Value* fallback = call.arguments.Find(0, "default");
  if (IsNumber(call.self)) return Value::MakeFloat(ToDouble(call.self));
  if (const Text* text = call.self.AsText()) {
    RETURN_IF_ERROR(call.budget.Copy(text->size()));
    if (const auto number = ReadFloat(*text)) return Value::MakeFloat(*number);
  }
  if (call.self.IsUndefined()) return NoNumber("float", call.self);
  return fallback != nullptr ? *fallback : Value::MakeFloat(0);
}

Result Absolute(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("abs", {}));
  if (IsInteger(call.self) && ToInt64(call.self) != std::numeric_limits<int64_t>::min()) {
    return Value::MakeInt(std::abs(ToInt64(call.self)));
  }
  if (IsNumber(call.self)) return Value::MakeFloat(std::abs(ToDouble(call.self)));
  return NoNumber("abs", call.self);
}

// Implements `round(number, precision)`: returns the decimal number nearest to the exact value of
// `number`. If two are equally near, returns the even one.
double RoundFloat(double number, int64_t precision) {
  if (!std::isfinite(number)) return number;
  double rounded = 0;
  if (precision >= 0) {
    const std::string digits = absl::StrFormat("%.*f", static_cast<int>(precision), number);
    if (absl::SimpleAtod(digits, &rounded)) return rounded;
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(number / scale) * scale;
}

// Like RoundFloat, for an integer and a negative precision. Returns nullopt if the result does not
// fit.
std::optional<int64_t> RoundInteger(int64_t number, int64_t precision) {
  // half of 10^19, which is too large for int64_t
  constexpr int64_t kHalfOfNextPower = 5'000'000'000'000'000'000;
  if (precision < -19) return 0;
  if (precision == -19) {
    if (number > kHalfOfNextPower || number < -kHalfOfNextPower) return std::nullopt;
    return 0;
  }
  int64_t scale = 1;
  for (; precision < 0; ++precision) scale *= 10;
  const int64_t rest = number % scale;
  const int64_t floor = number - rest;
  const int64_t twice = std::abs(rest) - (scale - std::abs(rest));
  if (twice < 0 || (twice == 0 && (floor / scale) % 2 == 0)) return floor;
  int64_t away = 0;
  if (__builtin_add_overflow(floor, number < 0 ? -scale : scale, &away)) return std::nullopt;
  return away;
}

Result Round(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("round", {"precision", "method"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(0, "precision"));
  ASSIGN_OR_RETURN(const std::optional<Text> method, call.arguments.FindText(1, "method"));
  const int64_t precision = given.value_or(0);
  constexpr int64_t kMaxPrecision = 30;
  if (!IsNumber(call.self)) return NoNumber("round", call.self);
  if (precision < -kMaxPrecision || precision > kMaxPrecision) {
    return absl::InvalidArgumentError(
        absl::StrCat("round's precision must be ", -kMaxPrecision, " to ", kMaxPrecision));
  }
  const std::string how = method.has_value() ? method->bytes() : "common";
  if (how == "common") {
    if (!IsInteger(call.self)) return Value::MakeFloat(RoundFloat(ToDouble(call.self), precision));
    if (precision >= 0) return Value::MakeInt(ToInt64(call.self));
    const std::optional<int64_t> rounded = RoundInteger(ToInt64(call.self), precision);
    if (rounded.has_value()) return Value::MakeInt(*rounded);
    return absl::InvalidArgumentError(absl::StrCat(ToInt64(call.self), " rounded to 10^",
                                                   -precision, " does not fit in 64 bits"));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = ToDouble(call.self) * scale;
  if (how == "ceil") return Value::MakeFloat(std::ceil(scaled) / scale);
  if (how == "floor") return Value::MakeFloat(std::floor(scaled) / scale);
  return absl::InvalidArgumentError(
      absl::StrCat("round has no method '", how, "'; it has common, ceil and floor"));
}

Result FileSize(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("filesizeformat", {"binary"}));
  const bool binary = call.arguments.FindFlag(0, "binary");
  const Arguments none;
  ASSIGN_OR_RETURN(const Value number, ToFloat({call.self, none, call.budget}));
  const double bytes = ToDouble(number);
  const bool is_text = call.self.AsText() != nullptr;
  if (!IsNumber(call.self) && !(is_text && ReadFloat(*call.self.AsText()).has_value())) {
    return NoNumber("filesizeformat", call.self);
  }
  const double base = binary ? 1024 : 1000;
  const auto text = [](const std::string& made) {
    return Value::MakeText(made, TextOrigin::kTemplate);
  };
  if (bytes == 1) return text("1 Byte");
  if (bytes < base) return text(absl::StrFormat("%.0f Bytes", std::trunc(bytes)));
  constexpr absl::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::string size;
  for (const char prefix : kPrefixes) {
    unit *= base;
    const std::string shown(1, binary && prefix == 'k' ? 'K' : prefix);
    size = absl::StrFormat("%.1f %s%s", base * bytes / unit, shown, binary ? "iB" : "B");
    if (bytes < unit) break;
  }
  return text(size);
}

constexpr NamedFunction kFilters[] = {
    {"int", ToInt},   {"float", ToFloat},           {"abs", Absolute},
    {"round", Round}, {"filesizeformat", FileSize},
};

}  // namespace

absl::Span<const NamedFunction> NumberFilters() { return kFilters; }

}  // namespace tidepool::engine::jinja
