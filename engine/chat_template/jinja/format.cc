#include "engine/chat_template/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

std::string Digits(uint64_t number, unsigned base, bool upper) {
  std::string digits;
  do {
    const char digit = "0123456789abcdef"[number % base];
    digits.push_back(upper ? absl::ascii_toupper(digit) : digit);
    number /= base;
  } while (number != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Formats a float for which no type is given: like str, or with `precision` digits and at least one
// digit after the point.
std::string GeneralFloat(double number, std::optional<int64_t> precision) {
  if (!precision.has_value() || !std::isfinite(number)) return FormatFloat(number);
  const int64_t digits = std::max<int64_t>(*precision, 1);
  const std::string scientific = absl::StrFormat("%.*e", static_cast<int>(digits - 1), number);
  int exponent = 0;
  if (!absl::SimpleAtoi(scientific.substr(scientific.find('e') + 1), &exponent)) return scientific;
  if (exponent < -4 || exponent >= digits - 1) {
    std::string mantissa = scientific.substr(0, scientific.find('e'));
    if (absl::StrContains(mantissa, '.')) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      if (mantissa.back() == '.') mantissa.pop_back();
    }
    return mantissa + scientific.substr(scientific.find('e'));
  }
  std::string plain = absl::StrFormat("%.*g", static_cast<int>(digits), number);
  if (!absl::StrContains(plain, '.')) plain += ".0";
  return plain;
}

// Formats |number| for the types e, f, g and %, and for no type (0).
std::string FloatDigits(double number, const FormatSpec& spec) {
  const double magnitude = std::abs(number);
  constexpr int64_t kDefault = 6;
  const auto precision = static_cast<int>(spec.precision.value_or(kDefault));
  const char kind = absl::ascii_tolower(spec.type);
  std::string digits;
  if (kind == 0) {
    digits = GeneralFloat(magnitude, spec.precision);
  } else if (kind == '%') {
    digits = absl::StrFormat("%.*f", precision, magnitude * 100) + "%";
  } else if (kind == 'e') {
    digits = spec.alternate ? absl::StrFormat("%#.*e", precision, magnitude)
                            : absl::StrFormat("%.*e", precision, magnitude);
  } else if (kind == 'f') {
    digits = spec.alternate ? absl::StrFormat("%#.*f", precision, magnitude)
                            : absl::StrFormat("%.*f", precision, magnitude);
  } else {
    digits = spec.alternate ? absl::StrFormat("%#.*g", precision, magnitude)
                            : absl::StrFormat("%.*g", precision, magnitude);
  }
  if (absl::ascii_isupper(spec.type)) digits = absl::AsciiStrToUpper(digits);
  return digits;
}

// Inserts separators between the digits before the point.
std::string Group(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string grouped;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) grouped.push_back(separator);
    grouped.push_back(digits[i]);
  }
  return grouped + digits.substr(whole);
}

struct Number {
  std::string head;  // sign and prefix, such as "-0x"
  std::string digits;
};

absl::StatusOr<Number> IntegerParts(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char kind = absl::ascii_tolower(spec.type);
  const unsigned base = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 10;
  Number number;
  number.digits = Digits(magnitude, base, spec.type == 'X');
  if (spec.precision.has_value()) {
    const auto wanted = static_cast<size_t>(*spec.precision);
    number.digits.insert(0, std::max(wanted, number.digits.size()) - number.digits.size(), '0');
  }
  if (spec.alternate && base != 10) number.head = absl::StrCat("0", std::string(1, spec.type));
  if (spec.grouping != 0) number.digits = Group(number.digits, spec.grouping, base == 10 ? 3 : 4);
  return number;
}

}  // namespace

Result FormatText(const Text& text, const FormatSpec& spec, Budget* budget) {
  RETURN_IF_ERROR(budget->Copy(text.size()));
  const Text cut =
      spec.precision.has_value() ? SliceText(text, {std::nullopt, *spec.precision, 1}) : text;
  const Side side = spec.align == '>'   ? Side::kLeft
                    : spec.align == '^' ? Side::kBoth
                                        : Side::kRight;
  if (side != Side::kBoth) return PadText(cut, spec.width, side, spec.fill, budget);
  // If the number of blanks is odd, format puts the additional blank on the right. str.center does
  // not always do this.
  const auto size = static_cast<int64_t>(CharacterOffsets(cut.bytes()).size()) - 1;
  const int64_t left = std::max<int64_t>(spec.width - size, 0) / 2;
  ASSIGN_OR_RETURN(const Value half, PadText(cut, size + left, Side::kLeft, spec.fill, budget));
  return PadText(*half.AsText(), spec.width, Side::kRight, spec.fill, budget);
}

Result FormatNumber(const Value& value, const FormatSpec& spec, Budget* budget) {
  const bool is_integer_type = absl::StrContains("bdoxX", spec.type) && spec.type != 0;
  if (!IsNumber(value) || (is_integer_type && !IsInteger(value))) {
    return absl::InvalidArgumentError(absl::StrCat("a value of type ", TypeName(value),
                                                   " cannot be formatted as ",
                                                   base::Quoted(absl::string_view(&spec.type, 1))));
  }
  Number number;
  bool negative = false;
  if (IsInteger(value) && (is_integer_type || spec.type == 0)) {
    negative = ToInt64(value) < 0;
    ASSIGN_OR_RETURN(number, IntegerParts(ToInt64(value), spec));
  } else {
    negative = std::signbit(ToDouble(value)) && !std::isnan(ToDouble(value));
    number.digits = FloatDigits(ToDouble(value), spec);
    if (spec.grouping != 0) number.digits = Group(number.digits, spec.grouping, 3);
  }
  const std::string sign = negative ? "-" : spec.sign != 0 ? std::string(1, spec.sign) : "";
  number.head = sign + number.head;
  FormatSpec padding = spec;
  padding.precision.reset();
  if (spec.align != '=') {
    if (spec.align == 0) padding.align = '>';
    return FormatText(Text(number.head + number.digits, TextOrigin::kTemplate), padding, budget);
  }
  const int64_t width = spec.width - static_cast<int64_t>(number.head.size());
  ASSIGN_OR_RETURN(const Value digits, PadText(Text(number.digits, TextOrigin::kTemplate), width,
                                               Side::kLeft, spec.fill, budget));
  Text text(number.head, TextOrigin::kTemplate);
  text.Append(*digits.AsText());
  return Value::MakeText(std::move(text));
}

}  // namespace tidepool::engine::jinja
