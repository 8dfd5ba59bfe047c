#include "engine/grammar/schema/schema_terms.h"

#include <algorithm>
#include <utility>

namespace tidepool::engine::grammar {

SchemaTerms::SchemaTerms() {
  Intern({.kind = Kind::kTrue});
  Intern({.kind = Kind::kFalse});
}

Term SchemaTerms::Intern(Node node) {
  const auto [entry, added] = numbers_.try_emplace({node.kind, node.negated, node.json, node.kids},
                                                   static_cast<Term>(nodes_.size()));
  if (added) nodes_.push_back(std::move(node));
  return entry->second;
}

Term SchemaTerms::Schema(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? kTrueTerm : kFalseTerm;
  if (schema.is_object() && schema.empty()) return kTrueTerm;
  return Intern({.kind = Kind::kSchema, .json = &schema});
}

Term SchemaTerms::Tracked(const Json& schema) {
  // The schema true must not become kTrueTerm here. In an anyOf, kTrueTerm would absorb the other
  // branches, and the properties and items that these evaluate would be lost.
  if (Schema(schema) == kFalseTerm) return kFalseTerm;
  return Intern({.kind = Kind::kTracked, .json = &schema});
}

Term SchemaTerms::Value(const Json& value) {
  return Intern({.kind = Kind::kValue, .json = &value});
}

Term SchemaTerms::Combine(Kind kind, std::vector<Term> parts) {
  const Term neutral = kind == Kind::kAnd ? kTrueTerm : kFalseTerm;
  const Term absorbing = kind == Kind::kAnd ? kFalseTerm : kTrueTerm;
  std::vector<Term> flat;
  for (const Term part : parts) {
    if (part == absorbing) return absorbing;
    if (part == neutral) continue;
    if (nodes_[part].kind == kind) {
      flat.insert(flat.end(), nodes_[part].kids.begin(), nodes_[part].kids.end());
    } else {
      flat.push_back(part);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return neutral;
  if (flat.size() == 1) return flat[0];
  for (const Term part : flat) {
    const Kind own = nodes_[part].kind;
    if ((own != Kind::kSchema && own != Kind::kValue) || nodes_[part].negated) continue;
    if (std::binary_search(flat.begin(), flat.end(), Not(part))) return absorbing;
  }
  return Intern({.kind = kind, .kids = std::move(flat)});
}

Term SchemaTerms::Not(Term term) {
  Node node = nodes_[term];
  switch (node.kind) {
    case Kind::kTrue:
      return kFalseTerm;
    case Kind::kFalse:
      return kTrueTerm;
    case Kind::kTracked:
      if (Schema(*node.json) == kTrueTerm) return kFalseTerm;
      node.kind = Kind::kSchema;
      [[fallthrough]];
    case Kind::kSchema:
    case Kind::kValue:
      node.negated = !node.negated;
      return Intern(std::move(node));
    case Kind::kAnd:
    case Kind::kOr:
      for (Term& kid : node.kids) kid = Not(kid);
      return Combine(node.kind == Kind::kAnd ? Kind::kOr : Kind::kAnd, std::move(node.kids));
  }
  return kFalseTerm;
}

}  // namespace tidepool::engine::grammar
