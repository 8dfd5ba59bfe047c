// The meaning of the keywords' negations: a value fails a schema if it fails one of its keywords.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/schema/schema_normalizer.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {

absl::StatusOr<Shapes> SchemaNormalizer::ComputeNegation(const Json& schema) {
  if (!schema.is_object()) return Error(schema, "", "a schema is an object or a boolean");
  for (const char* keyword :
       {"unevaluatedProperties", "unevaluatedItems", "contentMediaType", "contentEncoding"}) {
    const bool free = keyword[0] == 'c' && document_.dialect() == Dialect::kSince2019;
    if (schema.contains(keyword) && !free) {
      return Error(schema, keyword,
                   "not supported where the schema must not match (below not, "
                   "oneOf or if)");
    }
  }
  Shapes shapes;
  if (!(document_.ref_is_alone() && schema.contains("$ref"))) {
    if (schema.contains("type")) {
      ASSIGN_OR_RETURN(shapes, TypeShapes(schema, /*negated=*/true));
    }
    if (schema.contains("const")) {
      ASSIGN_OR_RETURN(const Shapes others, NotValue(schema["const"]));
      RETURN_IF_ERROR(sets_.Add(others, &shapes));
    }
    if (schema.contains("enum")) {
      if (!schema["enum"].is_array()) return Error(schema, "enum", "not an array");
      Shapes others = sets_.Everything();
      for (const Json& value : schema["enum"]) {
        ASSIGN_OR_RETURN(const Shapes differs, NotValue(value));
        ASSIGN_OR_RETURN(others, sets_.Intersect(others, differs));
      }
      RETURN_IF_ERROR(sets_.Add(others, &shapes));
    }
    RETURN_IF_ERROR(NegateNumbers(schema, &shapes));
    RETURN_IF_ERROR(NegateStrings(schema, &shapes));
    RETURN_IF_ERROR(NegateArrays(schema, &shapes));
    RETURN_IF_ERROR(NegateObjects(schema, &shapes));
  }
  ASSIGN_OR_RETURN(const std::vector<Term> terms, InPlaceTerms({schema, /*tracked=*/false}));
  for (const Term term : terms) {
    ASSIGN_OR_RETURN(const Shapes* others, Normalize(terms_.Not(term)));
    const absl::Status added = sets_.Add(*others, &shapes);
    if (!added.ok()) return Error(schema, "", added.message());
  }
  return shapes;
}

absl::Status SchemaNormalizer::NegateNumbers(const Json& schema, Shapes* shapes) {
  ASSIGN_OR_RETURN(const std::vector<NumberLimit> limits, NumberLimits(schema));
  for (const auto& [keyword, numbers] : limits) {
    const Regex others = pool_.And({numbers_.decimal(), pool_.Not(numbers)});
    if (!pool_.IsNothing(others)) RETURN_IF_ERROR(sets_.Add({.numbers = others}, shapes));
  }
  return absl::OkStatus();
}

absl::Status SchemaNormalizer::NegateStrings(const Json& schema, Shapes* shapes) {
  ASSIGN_OR_RETURN(const int64_t min, Count(schema, "minLength", 0));
  ASSIGN_OR_RETURN(const int64_t max, Count(schema, "maxLength", kNoLimit));
  const auto add = [&](int64_t from, int64_t to) {
    const Regex strings =
        pool_.Repeat(pool_.AnyCharacter(), static_cast<int32_t>(from), static_cast<int32_t>(to));
    return sets_.Add({.strings = strings}, shapes);
  };
  if (min > 0) RETURN_IF_ERROR(add(0, min - 1));
  if (max < kNoLimit) RETURN_IF_ERROR(add(max + 1, kNoLimit));
  for (const char* keyword : {"pattern", "format"}) {
    if (!schema.contains(keyword)) continue;
    ASSIGN_OR_RETURN(const Regex strings, StringsOf(schema, keyword));
    const Regex others = pool_.And({pool_.AnyText(), pool_.Not(strings)});
    if (pool_.IsNothing(others)) continue;
    RETURN_IF_ERROR(sets_.Add({.strings = others, .escapes = Escapes::kNeeded}, shapes));
  }
  return absl::OkStatus();
}

absl::Status SchemaNormalizer::NegateArrays(const Json& schema, Shapes* shapes) {
  Shapes all = sets_.Everything();
  ArrayShape& array = all.arrays[0];
  RETURN_IF_ERROR(ApplyArrays({schema, /*tracked=*/false}, &array));
  if (array.unique) {
    return Error(schema, "uniqueItems",
                 "not supported where the schema must not match (below not, oneOf or if)");
  }
  std::vector<ArrayShape> others;
  if (array.min > 0) others.push_back({.max = array.min - 1});
  if (array.max < kNoLimit) others.push_back({.min = array.max + 1});
  const auto prefix = static_cast<int64_t>(array.prefix.size());
  for (int64_t i = 0; i < prefix; ++i) {
    if (array.prefix[i] == kTrueTerm) continue;
    ArrayShape differs = {.min = i + 1};
    differs.prefix.resize(i, kTrueTerm);
    differs.prefix.push_back(terms_.Not(array.prefix[i]));
    others.push_back(std::move(differs));
  }
  if (array.items == kFalseTerm) {
    others.push_back({.min = prefix + 1});
  } else if (array.items != kTrueTerm) {
    others.push_back({.contains = {{.from = prefix, .item = terms_.Not(array.items)}}});
  }
  for (const Contains& contains : array.contains) {
    if (contains.min > 0) {
      others.push_back({.contains = {{.item = contains.item, .min = 0, .max = contains.min - 1}}});
    }
    if (contains.max < kNoLimit) {
      others.push_back({.contains = {{.item = contains.item, .min = contains.max + 1}}});
    }
  }
  // Alternatives that no array matches are left out. They come from keywords that all arrays
  // satisfy.
  for (ArrayShape& other : others) {
    if (sets_.IsImpossible(other)) continue;
    RETURN_IF_ERROR(sets_.Add({.arrays = {std::move(other)}}, shapes));
  }
  return absl::OkStatus();
}

// Adds the objects in which some property breaks the rule.
absl::Status SchemaNormalizer::NegateUniversal(const Json& schema, const std::string& keyword,
                                               const PropertyRule& rule, Shapes* shapes) {
  if (rule.value == kTrueTerm || pool_.IsNothing(rule.keys)) return absl::OkStatus();
  if (rule.name.has_value()) {
    ObjectShape breaks = {.rules = {{rule.keys, rule.name, terms_.Not(rule.value)}},
                          .required = {*rule.name}};
    if (sets_.IsImpossible(breaks)) return absl::OkStatus();
    return sets_.Add({.objects = {std::move(breaks)}}, shapes);
  }
  if (rule.value == kFalseTerm) return sets_.Add({.objects = {{.exists = {rule.keys}}}}, shapes);
  return Error(schema, keyword,
               "not supported where the schema must not match (below not, oneOf or if); list the "
               "properties by name");
}

absl::Status SchemaNormalizer::NegateObjects(const Json& schema, Shapes* shapes) {
  ASSIGN_OR_RETURN(const std::vector<PropertyRule> rules, RulesOf(schema));
  for (const PropertyRule& rule : rules) {
    const char* keyword = rule.name.has_value()                  ? "properties"
                          : schema.contains("patternProperties") ? "patternProperties"
                                                                 : "additionalProperties";
    RETURN_IF_ERROR(NegateUniversal(schema, keyword, rule, shapes));
  }
  if (schema.contains("propertyNames")) {
    ASSIGN_OR_RETURN(const Regex names, NamesRegex(schema));
    const Regex others = pool_.And({pool_.AnyText(), pool_.Not(names)});
    RETURN_IF_ERROR(
        NegateUniversal(schema, "propertyNames", {others, std::nullopt, kFalseTerm}, shapes));
  }
  if (schema.contains("required")) {
    if (!schema["required"].is_array()) return Error(schema, "required", "not an array of names");
    for (const Json& name : schema["required"]) {
      if (!name.is_string()) return Error(schema, "required", "not an array of names");
      const auto key = name.get<std::string>();
      RETURN_IF_ERROR(
          sets_.Add({.objects = {{.rules = {{pool_.Literal(key), key, kFalseTerm}}}}}, shapes));
    }
  }
  ASSIGN_OR_RETURN(const int64_t min, Count(schema, "minProperties", 0));
  ASSIGN_OR_RETURN(const int64_t max, Count(schema, "maxProperties", kNoLimit));
  if (min > 0) RETURN_IF_ERROR(sets_.Add({.objects = {{.max = min - 1}}}, shapes));
  if (max < kNoLimit) RETURN_IF_ERROR(sets_.Add({.objects = {{.min = max + 1}}}, shapes));
  return absl::OkStatus();
}

}  // namespace tidepool::engine::grammar
