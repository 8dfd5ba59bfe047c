#include "engine/grammar/schema/schema_normalizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {

SchemaNormalizer::SchemaNormalizer(SchemaDocument* document, RegexPool* pool, OneOf one_of)
    : document_(*document),
      pool_(*pool),
      one_of_(one_of),
      numbers_(pool),
      sets_(pool, &terms_, &numbers_, [this](Term term) { return IsNothing(term); }) {}

absl::StatusOr<const Shapes*> SchemaNormalizer::Normalize(Term term) {
  const auto [entry, added] = known_.try_emplace(term, nullptr);
  if (!added) {
    if (entry->second != nullptr) return entry->second.get();
    const SchemaTerms::Node node = terms_.node(term);
    return SchemaError(node.json == nullptr ? "" : document_.PointerOf(node.json), "",
                       "the schema refers to itself for the same value; remove the cycle");
  }
  absl::StatusOr<Shapes> shapes = Compute(term);
  if (!shapes.ok()) {
    known_.erase(term);
    return shapes.status();
  }
  return (known_[term] = std::make_unique<Shapes>(*std::move(shapes))).get();
}

absl::Status SchemaNormalizer::Located(Term term, const absl::Status& error) const {
  constexpr absl::string_view kLocated = "JSON schema, at";
  if (absl::StartsWith(error.message(), kLocated)) return error;
  while (terms_.node(term).json == nullptr && !terms_.node(term).kids.empty()) {
    term = terms_.node(term).kids[0];
  }
  const Json* schema = terms_.node(term).json;
  const absl::string_view message = error.message();
  const size_t colon = message.find(": ");
  const bool has_keyword = colon != absl::string_view::npos && message.find(' ') > colon;
  return SchemaError(schema == nullptr ? "" : document_.PointerOf(schema),
                     has_keyword ? message.substr(0, colon) : "",
                     has_keyword ? message.substr(colon + 2) : message);
}

// Returns false for a term that is being computed, and for a term with an error: it is not known
// whether these match a value.
bool SchemaNormalizer::IsNothing(Term term) {
  if (term == kTrueTerm || term == kFalseTerm) return term == kFalseTerm;
  constexpr int kMaxDepth = 16;
  const auto found = known_.find(term);
  if (found != known_.end()) return found->second != nullptr && found->second->IsNothing();
  if (depth_ >= kMaxDepth || left_ <= 0) return false;
  --left_;
  ++depth_;
  const absl::StatusOr<const Shapes*> shapes = Normalize(term);
  --depth_;
  return shapes.ok() && (*shapes)->IsNothing();
}

absl::StatusOr<Shapes> SchemaNormalizer::Compute(Term term) {
  const SchemaTerms::Node node = terms_.node(term);
  switch (node.kind) {
    case SchemaTerms::Kind::kTrue:
      return sets_.Everything();
    case SchemaTerms::Kind::kFalse:
      return Shapes();
    case SchemaTerms::Kind::kValue:
      return node.negated ? NotValue(*node.json) : ValueShapes(*node.json);
    case SchemaTerms::Kind::kSchema:
      if (node.negated) return ComputeNegation(*node.json);
      return ComputeSchema({*node.json, /*tracked=*/false});
    case SchemaTerms::Kind::kTracked:
      return ComputeSchema({*node.json, /*tracked=*/true});
    case SchemaTerms::Kind::kAnd: {
      Shapes result = sets_.Everything();
      for (const Term kid : node.kids) {
        ASSIGN_OR_RETURN(const Shapes* shapes, Normalize(kid));
        ASSIGN_OR_RETURN(result, sets_.Intersect(result, *shapes));
      }
      return result;
    }
    case SchemaTerms::Kind::kOr: {
      Shapes result;
      for (const Term kid : node.kids) {
        ASSIGN_OR_RETURN(const Shapes* shapes, Normalize(kid));
        RETURN_IF_ERROR(sets_.Add(*shapes, &result));
      }
      return result;
    }
  }
  return Shapes();
}

absl::StatusOr<Shapes> SchemaNormalizer::ValueShapes(const Json& value) {
  Shapes shapes;
  shapes.escapes = Escapes::kNeeded;
  switch (value.type()) {
    case Json::value_t::null:
      shapes.null = true;
      break;
    case Json::value_t::boolean:
      (value.get<bool>() ? shapes.yes : shapes.no) = true;
      break;
    case Json::value_t::string:
      shapes.strings = pool_.Literal(value.get_ref<const std::string&>());
      break;
    case Json::value_t::array: {
      ArrayShape array;
      for (const Json& item : value) array.prefix.push_back(terms_.Value(item));
      array.min = array.max = static_cast<int64_t>(value.size());
      shapes.arrays.push_back(std::move(array));
      break;
    }
    case Json::value_t::object: {
      ObjectShape object;
      for (const auto& [key, member] : value.items()) {
        object.rules.push_back({pool_.Literal(key), key, terms_.Value(member)});
        object.required.push_back(key);
      }
      object.max = static_cast<int64_t>(value.size());
      shapes.objects.push_back(std::move(object));
      break;
    }
    default: {
      const std::optional<Decimal> number = Decimal::Parse(value.dump());
      if (!number.has_value()) {
        return SchemaError("", "const", absl::StrCat("the number ", value.dump(), " is too long"));
      }
      shapes.numbers = pool_.Literal(number->Text());
    }
  }
  return shapes;
}

// Returns the shapes of all values except `value`.
absl::StatusOr<Shapes> SchemaNormalizer::NotValue(const Json& value) {
  Shapes shapes = sets_.Everything();
  switch (value.type()) {
    case Json::value_t::null:
      shapes.null = false;
      return shapes;
    case Json::value_t::boolean:
      (value.get<bool>() ? shapes.yes : shapes.no) = false;
      return shapes;
    case Json::value_t::string:
      shapes.strings =
          pool_.And({pool_.AnyText(), pool_.Not(pool_.Literal(value.get<std::string>()))});
      return shapes;
    case Json::value_t::array: {
      shapes.arrays.clear();
      const auto size = static_cast<int64_t>(value.size());
      shapes.arrays.push_back({.min = size + 1});
      if (size > 0) shapes.arrays.push_back({.max = size - 1});
      for (int64_t i = 0; i < size; ++i) {
        ArrayShape differs = {.min = size, .max = size};
        differs.prefix.resize(i, kTrueTerm);
        differs.prefix.push_back(terms_.Not(terms_.Value(value[i])));
        RETURN_IF_ERROR(sets_.Add({.arrays = {std::move(differs)}}, &shapes));
      }
      return shapes;
    }
    case Json::value_t::object: {
      shapes.objects.clear();
      std::vector<Regex> names;
      for (const auto& [key, member] : value.items()) {
        const Regex name = pool_.Literal(key);
        names.push_back(name);
        ObjectShape lacks = {.rules = {{name, key, kFalseTerm}}};
        ObjectShape differs = {.rules = {{name, key, terms_.Not(terms_.Value(member))}},
                               .required = {key}};
        RETURN_IF_ERROR(sets_.Add({.objects = {std::move(lacks), std::move(differs)}}, &shapes));
      }
      const Regex other = pool_.And({pool_.AnyText(), pool_.Not(pool_.Or(std::move(names)))});
      RETURN_IF_ERROR(sets_.Add({.objects = {{.exists = {other}}}}, &shapes));
      return shapes;
    }
    default: {
      const std::optional<Decimal> number = Decimal::Parse(value.dump());
      if (!number.has_value()) {
        return SchemaError("", "const", absl::StrCat("the number ", value.dump(), " is too long"));
      }
      shapes.numbers = pool_.And({numbers_.decimal(), pool_.Not(numbers_.Equal(*number))});
      return shapes;
    }
  }
}

absl::StatusOr<Shapes> SchemaNormalizer::ComputeSchema(const Context& context) {
  const Json& schema = context.schema;
  if (schema == true) return sets_.Everything();
  if (!schema.is_object()) {
    return Error(schema, "",
                 absl::StrCat("a schema is an object or a boolean, not ", schema.type_name()));
  }
  const bool unevaluated =
      schema.contains("unevaluatedProperties") || schema.contains("unevaluatedItems");
  const Context own = {schema, context.tracked || unevaluated};
  Shapes shapes = sets_.Everything();
  if (!(document_.ref_is_alone() && schema.contains("$ref"))) {
    RETURN_IF_ERROR(ApplyType(schema, &shapes));
    RETURN_IF_ERROR(ApplyNumbers(schema, &shapes));
    RETURN_IF_ERROR(ApplyStrings(schema, &shapes));
    RETURN_IF_ERROR(ApplyContent(schema, &shapes));
    // There is at most one alternative for arrays, and one for objects. Both may be impossible.
    if (!shapes.arrays.empty()) RETURN_IF_ERROR(ApplyArrays(own, &shapes.arrays[0]));
    if (!shapes.objects.empty()) RETURN_IF_ERROR(ApplyObjects(own, &shapes.objects[0]));
    if (!shapes.arrays.empty() && sets_.IsImpossible(shapes.arrays[0])) shapes.arrays.clear();
    if (!shapes.objects.empty() && sets_.IsImpossible(shapes.objects[0])) shapes.objects.clear();
    RETURN_IF_ERROR(ApplyValues(schema, &shapes));
  }
  ASSIGN_OR_RETURN(const std::vector<Term> terms, InPlaceTerms(own));
  for (const Term term : terms) {
    ASSIGN_OR_RETURN(const Shapes* other, Normalize(term));
    absl::StatusOr<Shapes> both = sets_.Intersect(shapes, *other);
    if (!both.ok()) return Error(schema, "", both.status().message());
    shapes = *std::move(both);
  }
  if (unevaluated) RETURN_IF_ERROR(ApplyUnevaluated(own, &shapes));
  if (!context.tracked) {
    for (ArrayShape& array : shapes.arrays) array.evaluated = 0;
    for (ObjectShape& object : shapes.objects) object.evaluated = kNoRegex;
  }
  return shapes;
}

absl::Status SchemaNormalizer::ApplyUnevaluated(const Context& context, Shapes* shapes) {
  const Json& schema = context.schema;
  if (schema.contains("unevaluatedProperties")) {
    const Term value = terms_.Schema(schema["unevaluatedProperties"]);
    std::vector<ObjectShape> possible;
    for (ObjectShape& object : shapes->objects) {
      const Regex others = pool_.And({pool_.AnyText(), pool_.Not(object.evaluated)});
      if (value != kTrueTerm && !pool_.IsNothing(others)) {
        object.rules.push_back({others, std::nullopt, value});
      }
      object.evaluated = pool_.AnyText();
      if (!sets_.IsImpossible(object)) possible.push_back(object);
    }
    shapes->objects = std::move(possible);
  }
  if (!schema.contains("unevaluatedItems")) return absl::OkStatus();
  const Term item = terms_.Schema(schema["unevaluatedItems"]);
  std::vector<ArrayShape> possible;
  for (ArrayShape& array : shapes->arrays) {
    if (!array.contains.empty() && array.evaluated != kNoLimit) {
      return Error(schema, "unevaluatedItems", "not supported beside \"contains\"; use \"items\"");
    }
    if (array.evaluated != kNoLimit) {
      while (static_cast<int64_t>(array.prefix.size()) < array.evaluated) {
        array.prefix.push_back(array.items);
      }
      for (size_t i = array.evaluated; i < array.prefix.size(); ++i) {
        array.prefix[i] = terms_.And({array.prefix[i], item});
      }
      array.items = terms_.And({array.items, item});
      array.evaluated = kNoLimit;
    }
    if (!sets_.IsImpossible(array)) possible.push_back(array);
  }
  shapes->arrays = std::move(possible);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SchemaNormalizer::Count(const Json& schema, const char* keyword,
                                                int64_t fallback) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return fallback;
  if (found->is_number()) {
    const auto value = found->get<double>();
    if (value >= 0 && value == static_cast<double>(static_cast<int64_t>(value)) &&
        value < kNoLimit) {
      return static_cast<int64_t>(value);
    }
  }
  return Error(schema, keyword, absl::StrCat(found->dump(), " is not a count"));
}

}  // namespace tidepool::engine::grammar
