// SchemaNormalizer: computes the shapes of terms. This is where each keyword gets its meaning, and
// the meaning of its negation.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_NORMALIZER_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_NORMALIZER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/number_regex.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_terms.h"
#include "engine/grammar/schema/shapes.h"

namespace tidepool::engine::grammar {

// Whether oneOf may be treated as anyOf.
enum class OneOf : uint8_t { kExact, kAsAnyOf };

// Thread-compatible. Large because each group of keywords has a meaning and a negation.
class SchemaNormalizer {
 public:
  // Both pointers must outlive this object.
  SchemaNormalizer(SchemaDocument* document, RegexPool* pool, OneOf one_of);

  SchemaTerms& terms() { return terms_; }
  ShapeSets& sets() { return sets_; }
  RegexPool& pool() { return pool_; }

  // Returns the shapes of a term, which are valid as long as this object. Returns INVALID_ARGUMENT
  // if a schema is wrong, or cannot be enforced exactly.
  absl::StatusOr<const Shapes*> Normalize(Term term);

  // Adds the place of the term's schema to an error that has none.
  absl::Status Located(Term term, const absl::Status& error) const;

 private:
  // One subschema under evaluation.
  struct Context {
    const Json& schema;
    bool tracked;  // whether to record which properties and items are evaluated
  };
  // A keyword that allows only some numbers.
  struct NumberLimit {
    const char* keyword;
    Regex numbers;
  };

  bool IsNothing(Term term);
  absl::StatusOr<Shapes> Compute(Term term);
  absl::StatusOr<Shapes> ValueShapes(const Json& value);
  absl::StatusOr<Shapes> EnumShapes(const Json& schema);
  absl::StatusOr<Shapes> NotValue(const Json& value);
  absl::StatusOr<Shapes> ComputeSchema(const Context& context);
  absl::StatusOr<Shapes> ComputeNegation(const Json& schema);

  // These functions restrict `shapes` by the keywords about the value itself.
  absl::Status ApplyType(const Json& schema, Shapes* shapes);
  absl::StatusOr<Shapes> TypeShapes(const Json& schema, bool negated);
  absl::Status ApplyValues(const Json& schema, Shapes* shapes);
  absl::Status ApplyNumbers(const Json& schema, Shapes* shapes);
  absl::Status ApplyStrings(const Json& schema, Shapes* shapes);
  absl::Status ApplyContent(const Json& schema, Shapes* shapes);
  absl::Status ApplyArrays(const Context& context, ArrayShape* array);
  absl::Status ApplyObjects(const Context& context, ObjectShape* object);
  // Returns the terms of the keywords that apply further schemas to the same value.
  absl::StatusOr<std::vector<Term>> InPlaceTerms(const Context& context);
  absl::Status AddConditions(const Context& context, std::vector<Term>* terms);
  absl::StatusOr<Term> OneOfTerm(const Context& context, const Json& list);
  Term AnyOfTerm(const Context& context, const Json& list);
  absl::StatusOr<Term> RefTerm(const Context& context, const std::string& keyword);
  absl::Status ApplyUnevaluated(const Context& context, Shapes* shapes);

  absl::Status NegateNumbers(const Json& schema, Shapes* shapes);
  absl::Status NegateStrings(const Json& schema, Shapes* shapes);
  absl::Status NegateArrays(const Json& schema, Shapes* shapes);
  absl::Status NegateObjects(const Json& schema, Shapes* shapes);
  absl::Status NegateUniversal(const Json& schema, const std::string& keyword,
                               const PropertyRule& rule, Shapes* shapes);

  absl::StatusOr<std::vector<PropertyRule>> RulesOf(const Json& schema);
  absl::StatusOr<Regex> NamesRegex(const Json& schema);
  absl::StatusOr<Regex> StringsOf(const Json& schema, absl::string_view keyword);
  absl::StatusOr<Regex> NumbersOf(const Json& schema, absl::string_view keyword);
  absl::StatusOr<std::vector<NumberLimit>> NumberLimits(const Json& schema);
  // Has: a schema for objects with the property `name`. Lacks: a schema for all other values.
  Term Has(const std::string& name);
  Term Lacks(const std::string& name);

  Term Child(const Context& context, const Json& schema) {
    return context.tracked ? terms_.Tracked(schema) : terms_.Schema(schema);
  }
  absl::Status Error(const Json& schema, absl::string_view keyword,
                     absl::string_view reason) const {
    return SchemaError(document_.PointerOf(&schema), keyword, reason);
  }
  absl::StatusOr<int64_t> Count(const Json& schema, const char* keyword, int64_t fallback) const;

  SchemaDocument& document_;
  RegexPool& pool_;
  const OneOf one_of_;
  SchemaTerms terms_;
  NumberRegexes numbers_;
  ShapeSets sets_;
  absl::flat_hash_map<Term, std::unique_ptr<Shapes>> known_;  // null: being computed
  std::deque<Json> made_;  // schemas that were made from parts of other schemas
  int depth_ = 0;          // depth of nested calls of IsNothing
  int left_ = 20'000;      // number of terms that IsNothing may still compute
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_NORMALIZER_H_
