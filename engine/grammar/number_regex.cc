#include "engine/grammar/number_regex.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tidepool::engine::grammar {
namespace {

constexpr size_t kMaxDigits = 400;

Regex Digits(RegexPool* pool, char low, char high) {
  return low > high ? kNoRegex : pool->Bytes(ByteRange(low, high));
}

std::string TakeDigits(absl::string_view* text) {
  size_t size = 0;
  while (size < text->size() && absl::ascii_isdigit((*text)[size])) ++size;
  std::string digits(text->substr(0, size));
  text->remove_prefix(size);
  return digits;
}

}  // namespace

std::optional<Decimal> Decimal::Parse(absl::string_view text) {
  Decimal result;
  result.negative = absl::ConsumePrefix(&text, "-");
  std::string whole = TakeDigits(&text);
  std::string fraction;
  if (absl::ConsumePrefix(&text, ".")) fraction = TakeDigits(&text);
  int64_t exponent = 0;
  if (absl::ConsumePrefix(&text, "e") || absl::ConsumePrefix(&text, "E")) {
    absl::ConsumePrefix(&text, "+");
    if (!absl::SimpleAtoi(text, &exponent)) return std::nullopt;
    text = "";
  }
  const int64_t limit = kMaxDigits;
  if (whole.empty() || !text.empty() || exponent > limit || exponent < -limit) return std::nullopt;
  for (; exponent > 0; --exponent) {
    whole.push_back(fraction.empty() ? '0' : fraction[0]);
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  const size_t first = whole.find_first_not_of('0');
  result.whole = first == std::string::npos ? "0" : whole.substr(first);
  const size_t last = fraction.find_last_not_of('0');
  result.fraction = last == std::string::npos ? "" : fraction.substr(0, last + 1);
  if (result.whole.size() + result.fraction.size() > kMaxDigits) return std::nullopt;
  if (result.is_zero()) result.negative = false;
  return result;
}

std::string Decimal::Text() const {
  return absl::StrCat(negative ? "-" : "", whole, fraction.empty() ? "" : ".", fraction);
}

NumberRegexes::NumberRegexes(RegexPool* pool) : pool_(*pool) {
  RegexPool& p = pool_;
  digit_ = Digits(&p, '0', '9');
  digits_ = p.Repeat(digit_, 0, kNoLimit);
  const Regex point = p.Literal(".");
  fraction_ = p.Repeat(p.Concat(point, p.Repeat(digit_, 1, kNoLimit)), 0, 1);
  zeros_ = p.Repeat(p.Concat(point, p.Repeat(p.Literal("0"), 1, kNoLimit)), 0, 1);
  const Regex whole = p.Or({p.Literal("0"), p.Concat(Digits(&p, '1', '9'), digits_)});
  const Regex sign = p.Repeat(p.Literal("-"), 0, 1);
  magnitude_ = p.Concat(whole, fraction_);
  integer_ = p.Concat(sign, whole);
  integral_ = p.Concat(integer_, zeros_);
  ByteSet letters, signs;
  letters.set('e').set('E');
  signs.set('+').set('-');
  const Regex exponent = p.Concat(
      p.Bytes(letters), p.Concat(p.Repeat(p.Bytes(signs), 0, 1), p.Repeat(digit_, 1, kNoLimit)));
  full_ = p.Concat(sign, p.Concat(magnitude_, p.Repeat(exponent, 0, 1)));
  const Regex minus_zero = p.Concat(p.Literal("-0"), zeros_);
  decimal_ = p.And({p.Concat(sign, magnitude_), p.Not(minus_zero)});
}

Regex NumberRegexes::Negative(Regex magnitude) {
  return pool_.Concat(pool_.Literal("-"), magnitude);
}

// Matches a point and digits, or nothing. The value is at least 0.`fraction` (kIncluded), or
// greater than 0.`fraction` (kExcluded).
Regex NumberRegexes::FractionFrom(absl::string_view fraction, Bound bound) {
  const Regex point = pool_.Literal(".");
  // The digits that may follow after all digits of `fraction`, if the value must be greater.
  const Regex positive = pool_.Concat(digits_, pool_.Concat(Digits(&pool_, '1', '9'), digits_));
  if (fraction.empty()) {
    return bound == Bound::kIncluded ? fraction_ : pool_.Concat(point, positive);
  }
  Regex rest = bound == Bound::kIncluded ? digits_ : positive;
  for (size_t i = fraction.size(); i-- > 0;) {
    const Regex same = pool_.Literal(fraction.substr(i, 1));
    const Regex greater = Digits(&pool_, static_cast<char>(fraction[i] + 1), '9');
    rest = pool_.Or({pool_.Concat(same, rest), pool_.Concat(greater, digits_)});
  }
  return pool_.Concat(point, rest);
}

// Matches the decimals without a sign that are at least |value| (kIncluded), or greater than
// |value| (kExcluded).
Regex NumberRegexes::Magnitude(const Decimal& value, Bound bound) {
  const std::string& whole = value.whole;
  Regex rest = FractionFrom(value.fraction, bound);
  for (size_t i = whole.size(); i-- > 0;) {
    const Regex same = pool_.Literal(whole.substr(i, 1));
    const Regex greater = Digits(&pool_, static_cast<char>(whole[i] + 1), '9');
    const auto left = static_cast<int32_t>(whole.size() - i - 1);
    rest = pool_.Or(
        {pool_.Concat(same, rest),
         pool_.Concat(greater, pool_.Concat(pool_.Repeat(digit_, left, left), fraction_))});
  }
  const auto size = static_cast<int32_t>(whole.size());
  const Regex longer = pool_.Concat(pool_.Repeat(digit_, size, kNoLimit), fraction_);
  return pool_.Or({rest, pool_.Concat(Digits(&pool_, '1', '9'), longer)});
}

Regex NumberRegexes::AtLeast(const Decimal& value) {
  if (!value.negative && !value.is_zero()) return Magnitude(value, Bound::kIncluded);
  const Regex below = pool_.And({magnitude_, pool_.Not(Magnitude(value, Bound::kExcluded))});
  return pool_.Or({magnitude_, Negative(below)});
}

Regex NumberRegexes::GreaterThan(const Decimal& value) {
  if (!value.negative) return Magnitude(value, Bound::kExcluded);
  const Regex below = pool_.And({magnitude_, pool_.Not(Magnitude(value, Bound::kIncluded))});
  return pool_.Or({magnitude_, Negative(below)});
}

Regex NumberRegexes::Equal(const Decimal& value) {
  const Regex zeros = pool_.Repeat(pool_.Literal("0"), 0, kNoLimit);
  const Regex end = value.fraction.empty() ? zeros_ : zeros;
  const Regex text = pool_.Concat(pool_.Literal(value.Text()), end);
  return value.is_zero() ? pool_.Or({text, Negative(text)}) : text;
}

std::optional<Regex> NumberRegexes::Multiples(const Decimal& divisor, MultipleForm form) {
  int64_t digits = 0;
  if (divisor.fraction.size() > 17 || divisor.is_zero() ||
      !absl::SimpleAtoi(divisor.whole + divisor.fraction, &digits) ||
      digits >= (int64_t{1} << 59)) {
    return std::nullopt;
  }
  const auto scale = static_cast<int32_t>(divisor.fraction.size());
  const Regex positive = pool_.Multiple(digits, scale, form);
  return pool_.Or({positive, Negative(positive)});
}

std::optional<Regex> NumberRegexes::MultipleOf(const Decimal& divisor) {
  const std::optional<Regex> multiples = Multiples(divisor, MultipleForm::kDecimal);
  if (multiples.has_value()) divisors_.emplace(*multiples, divisor);
  return multiples;
}

Regex NumberRegexes::Intersect(Regex a, Regex b) {
  if (a == full_ || a == b) return b;
  if (b == full_) return a;
  for (const auto& [set, other] : {std::pair(a, b), std::pair(b, a)}) {
    const auto found = divisors_.find(set);
    if (found == divisors_.end()) continue;
    if (other == decimal_ || other == integral_) return set;
    if (other == integer_) return *Multiples(found->second, MultipleForm::kInteger);
  }
  const Regex both = pool_.And({a, b});
  return pool_.IsNothing(both) ? kNoRegex : both;
}

}  // namespace tidepool::engine::grammar
