// Shapes: the values that a term matches, by type. A term's shapes are a union of sets: null,
// booleans, numbers, strings, and the arrays and objects of each alternative.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SHAPES_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/number_regex.h"
#include "engine/grammar/regex_pool.h"
#include "engine/grammar/schema/schema_terms.h"

namespace tidepool::engine::grammar {

// Of the items from index `from` on, at least `min` and at most `max` match `item`.
struct Contains {
  int64_t from = 0;
  Term item = kTrueTerm;
  int64_t min = 1;
  int64_t max = kNoLimit;
  bool operator==(const Contains&) const = default;
};

struct ArrayShape {
  std::vector<Term> prefix;  // terms of the first items
  Term items = kTrueTerm;    // term of all further items
  int64_t min = 0;           // number of items
  int64_t max = kNoLimit;
  std::vector<Contains> contains;
  bool unique = false;
  int64_t evaluated = 0;  // number of items at the start that were evaluated; kNoLimit: all

  Term ItemAt(int64_t index) const {
    return index < static_cast<int64_t>(prefix.size()) ? prefix[index] : items;
  }
  bool operator==(const ArrayShape&) const = default;
};

// The value of every property whose key matches `keys` matches `value`.
struct PropertyRule {
  Regex keys = kNoRegex;
  std::optional<std::string> name;  // set if `keys` matches only this name
  Term value = kTrueTerm;
  bool is_pattern = false;  // from patternProperties
  bool operator==(const PropertyRule&) const = default;
};

struct ObjectShape {
  std::vector<PropertyRule> rules;  // the rules with a name are in the order of the output
  std::vector<std::string> required;
  std::vector<Regex> exists;  // at least one key matches each of these expressions
  int64_t min = 0;            // number of properties
  int64_t max = kNoLimit;
  Regex evaluated = kNoRegex;  // keys of the properties that were evaluated
  bool operator==(const ObjectShape&) const = default;
};

struct Shapes {
  bool null = false;
  bool yes = false;  // the value true
  bool no = false;   // the value false
  Regex numbers = kNoRegex;
  Regex strings = kNoRegex;  // matches the values of strings, not their JSON texts
  Escapes escapes = Escapes::kAny;
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;

  bool IsNothing() const {
    return !null && !yes && !no && numbers == kNoRegex && strings == kNoRegex && arrays.empty() &&
           objects.empty();
  }
};

inline constexpr size_t kMaxAlternatives = 256;

// Thread-compatible. Implements the set operations on shapes.
class ShapeSets {
 public:
  // Returns whether a term certainly matches no value. May return false if this is unknown.
  using IsNothingFn = std::function<bool(Term)>;

  ShapeSets(RegexPool* pool, SchemaTerms* terms, NumberRegexes* numbers, IsNothingFn is_nothing)
      : pool_(*pool), terms_(*terms), numbers_(*numbers), is_nothing_(std::move(is_nothing)) {}

  Shapes Everything();
  // Returns INVALID_ARGUMENT if there are more than kMaxAlternatives alternatives.
  absl::StatusOr<Shapes> Intersect(const Shapes& a, const Shapes& b);
  absl::Status Add(const Shapes& more, Shapes* shapes);
  // Returns whether no value is in both `a` and `b`. May return false if this is unknown.
  bool Disjoint(const Shapes& a, const Shapes& b);

  Regex IntersectNumbers(Regex a, Regex b);
  Regex IntersectStrings(Regex a, Regex b);
  // The conjunction of the terms of all rules for this key.
  Term ValueOf(const ObjectShape& object, const std::string& key);
  // Returns whether the alternative certainly matches nothing.
  bool IsImpossible(const ObjectShape& object);
  bool IsImpossible(const ArrayShape& array);

 private:
  ArrayShape IntersectArrays(const ArrayShape& a, const ArrayShape& b);
  ObjectShape IntersectObjects(const ObjectShape& a, const ObjectShape& b);

  RegexPool& pool_;
  SchemaTerms& terms_;
  NumberRegexes& numbers_;
  IsNothingFn is_nothing_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SHAPES_H_
