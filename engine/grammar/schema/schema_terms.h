// Boolean terms over schemas: which schemas a value must match, and which it must not.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_TERMS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_TERMS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/grammar/schema/schema_document.h"

namespace tidepool::engine::grammar {

// The number of a term. Equal terms have equal numbers.
using Term = int32_t;
inline constexpr Term kTrueTerm = 0;
inline constexpr Term kFalseTerm = 1;

// Thread-compatible.
class SchemaTerms {
 public:
  enum class Kind : uint8_t {
    kTrue,
    kFalse,
    kSchema,   // matches a schema
    kTracked,  // matches a schema, and records which properties and items the schema evaluates
    kValue,    // is equal to a JSON value
    kAnd,
    kOr,
  };
  struct Node {
    Kind kind = Kind::kTrue;
    bool negated = false;        // of kSchema and kValue
    const Json* json = nullptr;  // of kSchema, kTracked and kValue
    std::vector<Term> kids;      // of kAnd and kOr, in ascending order
  };

  SchemaTerms();

  Term Schema(const Json& schema);
  Term Tracked(const Json& schema);
  Term Value(const Json& value);
  Term And(std::vector<Term> parts) { return Combine(Kind::kAnd, std::move(parts)); }
  Term Or(std::vector<Term> parts) { return Combine(Kind::kOr, std::move(parts)); }
  Term Not(Term term);

  Node node(Term term) const { return nodes_[term]; }
  size_t size() const { return nodes_.size(); }

 private:
  Term Combine(Kind kind, std::vector<Term> parts);
  Term Intern(Node node);

  std::vector<Node> nodes_;
  std::map<std::tuple<Kind, bool, const Json*, std::vector<Term>>, Term> numbers_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_TERMS_H_
