// Regular expressions for the texts of JSON numbers.
//
// A number has many spellings: 5, 5.0 and 5e0. "Full numbers" are all spellings of the JSON
// grammar. "Decimals" are the spellings without an exponent. A constraint on a number's value
// allows only decimals.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_NUMBER_REGEX_H_
#define TIDEPOOL_ENGINE_GRAMMAR_NUMBER_REGEX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/regex_pool.h"

namespace tidepool::engine::grammar {

// An exact decimal number.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // digits without leading zeros, except for "0"
  std::string fraction;     // digits without trailing zeros

  // Parses a number of JSON. Returns nullopt if the text is not one, or if it has more than 400
  // digits without an exponent.
  static std::optional<Decimal> Parse(absl::string_view text);

  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  // The shortest text without an exponent.
  std::string Text() const;
  bool operator==(const Decimal&) const = default;
};

// Thread-compatible. Builds expressions in `pool`, which must outlive this object.
class NumberRegexes {
 public:
  explicit NumberRegexes(RegexPool* pool);

  Regex full() const { return full_; }
  // Decimals, without -0.
  Regex decimal() const { return decimal_; }
  // Integers without a point. They include -0, as in other JSON grammars.
  Regex integer() const { return integer_; }
  // Decimals whose value is an integer, such as 5.00.
  Regex integral() const { return integral_; }

  // Equal: all decimals that are equal to `value`. The other functions: all decimals for which the
  // comparison with `value` is true. These include -0.
  Regex Equal(const Decimal& value);
  Regex AtLeast(const Decimal& value);
  Regex GreaterThan(const Decimal& value);
  // All decimals that are multiples of `divisor`. These include -0. Returns nullopt if the divisor
  // has too many digits.
  std::optional<Regex> MultipleOf(const Decimal& divisor);
  // Intersects two sets. Faster than RegexPool::And for multiples that are integers.
  Regex Intersect(Regex a, Regex b);

 private:
  enum class Bound : uint8_t { kIncluded, kExcluded };
  Regex Magnitude(const Decimal& value, Bound bound);
  Regex FractionFrom(absl::string_view fraction, Bound bound);
  Regex Negative(Regex magnitude);

  std::optional<Regex> Multiples(const Decimal& divisor, MultipleForm form);

  RegexPool& pool_;
  Regex digit_;
  Regex digits_;     // any number of digits
  Regex fraction_;   // a point and digits, or nothing
  Regex zeros_;      // a point and zeros, or nothing
  Regex magnitude_;  // decimals without a sign
  Regex full_;
  Regex decimal_;
  Regex integer_;
  Regex integral_;
  // divisors of the expressions that MultipleOf returned
  absl::flat_hash_map<Regex, Decimal> divisors_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_NUMBER_REGEX_H_
