// The meaning of the keywords.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/schema/schema_normalizer.h"
#include "engine/grammar/schema/string_formats.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

constexpr size_t kMaxTrackedBranches = 6;

}  // namespace

absl::StatusOr<Shapes> SchemaNormalizer::TypeShapes(const Json& schema, bool negated) {
  const Json& type = schema["type"];
  const Json list = type.is_array() ? type : Json::array({type});
  Shapes all = sets_.Everything(), some, rest = all;
  for (const Json& name : list) {
    if (name == "null") {
      some.null = true;
      rest.null = false;
    } else if (name == "boolean") {
      some.yes = some.no = true;
      rest.yes = rest.no = false;
    } else if (name == "number") {
      some.numbers = all.numbers;
      rest.numbers = kNoRegex;
    } else if (name == "integer") {
      if (some.numbers != all.numbers) some.numbers = numbers_.integer();
      if (rest.numbers != kNoRegex) {
        rest.numbers = pool_.And({numbers_.decimal(), pool_.Not(numbers_.integral())});
      }
    } else if (name == "string") {
      some.strings = all.strings;
      rest.strings = kNoRegex;
    } else if (name == "array") {
      some.arrays = all.arrays;
      rest.arrays.clear();
    } else if (name == "object") {
      some.objects = all.objects;
      rest.objects.clear();
    } else {
      return Error(schema, "type", absl::StrCat("unknown type ", name.dump()));
    }
  }
  return negated ? rest : some;
}

absl::StatusOr<Shapes> SchemaNormalizer::EnumShapes(const Json& schema) {
  const Json& values = schema["enum"];
  if (!values.is_array()) return Error(schema, "enum", "not an array");
  Shapes shapes;
  shapes.escapes = Escapes::kNeeded;
  std::vector<Regex> numbers;
  std::vector<std::string> strings;
  for (const Json& value : values) {
    if (value.is_string()) {
      strings.push_back(value.get<std::string>());
      continue;
    }
    ASSIGN_OR_RETURN(Shapes one, ValueShapes(value));
    numbers.push_back(std::exchange(one.numbers, kNoRegex));
    const absl::Status added = sets_.Add(one, &shapes);
    if (!added.ok()) return Error(schema, "enum", added.message());
  }
  shapes.numbers = pool_.Or(std::move(numbers));
  shapes.strings = pool_.Literals(std::move(strings));
  return shapes;
}

absl::Status SchemaNormalizer::ApplyType(const Json& schema, Shapes* shapes) {
  if (schema.contains("type")) {
    ASSIGN_OR_RETURN(*shapes, TypeShapes(schema, /*negated=*/false));
  }
  return absl::OkStatus();
}

absl::Status SchemaNormalizer::ApplyValues(const Json& schema, Shapes* shapes) {
  if (schema.contains("enum")) {
    ASSIGN_OR_RETURN(const Shapes values, EnumShapes(schema));
    ASSIGN_OR_RETURN(*shapes, sets_.Intersect(*shapes, values));
  }
  if (schema.contains("const")) {
    ASSIGN_OR_RETURN(const Shapes value, ValueShapes(schema["const"]));
    ASSIGN_OR_RETURN(*shapes, sets_.Intersect(*shapes, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Regex> SchemaNormalizer::NumbersOf(const Json& schema, absl::string_view keyword) {
  const Json& value = schema[std::string(keyword)];
  const std::optional<Decimal> number =
      value.is_number() ? Decimal::Parse(value.dump()) : std::nullopt;
  if (!number.has_value()) {
    return Error(schema, keyword, absl::StrCat(value.dump(), " is not a number of few digits"));
  }
  // In draft 4, `exclusiveMinimum` and `exclusiveMaximum` are booleans: they say whether `minimum`
  // and `maximum` themselves are excluded.
  const auto excludes = [&schema](const char* flag) {
    return schema.contains(flag) && schema[flag] == true;
  };
  if (keyword == "minimum" && !excludes("exclusiveMinimum")) return numbers_.AtLeast(*number);
  if (keyword == "minimum" || keyword == "exclusiveMinimum") return numbers_.GreaterThan(*number);
  if (keyword == "maximum" && !excludes("exclusiveMaximum")) {
    return pool_.Not(numbers_.GreaterThan(*number));
  }
  if (keyword == "maximum" || keyword == "exclusiveMaximum") {
    return pool_.Not(numbers_.AtLeast(*number));
  }
  const std::optional<Regex> multiple =
      number->negative ? std::nullopt : numbers_.MultipleOf(*number);
  if (!multiple.has_value()) {
    return Error(schema, keyword, "must be greater than 0 and have at most 17 digits");
  }
  return *multiple;
}

absl::StatusOr<std::vector<SchemaNormalizer::NumberLimit>> SchemaNormalizer::NumberLimits(
    const Json& schema) {
  std::vector<NumberLimit> limits;
  for (const char* keyword :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    if (!schema.contains(keyword)) continue;
    if (schema[keyword].is_boolean() && keyword[0] == 'e') {
      if (document_.dialect() != Dialect::kSince2019) continue;
      return Error(schema, keyword, "is a boolean, as in draft 4; write the limit here");
    }
    ASSIGN_OR_RETURN(const Regex numbers, NumbersOf(schema, keyword));
    limits.push_back({keyword, numbers});
  }
  if (!schema.contains("format")) return limits;
  // The range of a number in two's complement is -`end` to `end` - 1.
  const char* end = schema["format"] == "int32"   ? "2147483648"
                    : schema["format"] == "int64" ? "9223372036854775808"
                                                  : nullptr;
  if (end == nullptr) return limits;
  const Regex below = pool_.Not(numbers_.AtLeast(*Decimal::Parse(end)));
  const Regex low = numbers_.AtLeast(*Decimal::Parse(absl::StrCat("-", end)));
  limits.push_back({"format", pool_.And({numbers_.integral(), low, below})});
  return limits;
}

absl::Status SchemaNormalizer::ApplyNumbers(const Json& schema, Shapes* shapes) {
  ASSIGN_OR_RETURN(const std::vector<NumberLimit> limits, NumberLimits(schema));
  for (const auto& [keyword, numbers] : limits) {
    const Regex decimals = numbers_.Intersect(numbers_.decimal(), numbers);
    if (shapes->numbers != kNoRegex) {
      shapes->numbers = sets_.IntersectNumbers(shapes->numbers, decimals);
    }
    if (pool_.over_limit()) return Error(schema, keyword, "too large; use a simpler number");
  }
  return absl::OkStatus();
}

absl::StatusOr<Regex> SchemaNormalizer::StringsOf(const Json& schema, absl::string_view keyword) {
  const Json& value = schema[std::string(keyword)];
  if (!value.is_string()) return Error(schema, keyword, "not a string");
  const std::string& text = value.get_ref<const std::string&>();
  if (keyword == "format") {
    const std::optional<Regex> format = FormatRegex(text, &pool_);
    if (format.has_value()) return *format;
    return Error(schema, keyword,
                 absl::StrCat(base::Quoted(text), " is not supported; remove it, or use one of ",
                              KnownFormats()));
  }
  const absl::StatusOr<Regex> pattern = ParseRegex(text, RegexScope::kSearch, &pool_);
  if (!pattern.ok()) return Error(schema, keyword, pattern.status().message());
  return *pattern;
}

absl::Status SchemaNormalizer::ApplyStrings(const Json& schema, Shapes* shapes) {
  ASSIGN_OR_RETURN(const int64_t min, Count(schema, "minLength", 0));
  ASSIGN_OR_RETURN(const int64_t max, Count(schema, "maxLength", kNoLimit));
  Regex strings = pool_.AnyText();
  if (min > max) {
    strings = kNoRegex;
  } else if (min > 0 || max < kNoLimit) {
    strings =
        pool_.Repeat(pool_.AnyCharacter(), static_cast<int32_t>(min), static_cast<int32_t>(max));
  }
  for (const char* keyword : {"pattern", "format"}) {
    if (!schema.contains(keyword)) continue;
    ASSIGN_OR_RETURN(const Regex more, StringsOf(schema, keyword));
    if (more == pool_.AnyText()) continue;
    strings = sets_.IntersectStrings(strings, more);
    shapes->escapes = Escapes::kNeeded;
    if (pool_.over_limit()) return Error(schema, keyword, "too complex; simplify the pattern");
  }
  if (shapes->strings != kNoRegex) {
    shapes->strings = sets_.IntersectStrings(shapes->strings, strings);
  }
  return absl::OkStatus();
}

// Up to draft 7 these keywords may restrict strings; since 2019-09 they are annotations.
absl::Status SchemaNormalizer::ApplyContent(const Json& schema, Shapes* shapes) {
  if (document_.dialect() == Dialect::kSince2019) return absl::OkStatus();
  if (schema.contains("contentMediaType")) {
    return Error(
        schema, "contentMediaType",
        "not supported up to draft 7; remove it, or set $schema to draft 2020-12, where it "
        "is an annotation");
  }
  if (!schema.contains("contentEncoding")) return absl::OkStatus();
  if (schema["contentEncoding"] != "base64") {
    return Error(schema, "contentEncoding", "only base64 is supported");
  }
  constexpr absl::string_view kBase64 =
      "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
  ASSIGN_OR_RETURN(const Regex base64, ParseRegex(kBase64, RegexScope::kWhole, &pool_));
  if (shapes->strings != kNoRegex) {
    shapes->strings = sets_.IntersectStrings(shapes->strings, base64);
  }
  shapes->escapes = Escapes::kNeeded;
  return absl::OkStatus();
}

absl::Status SchemaNormalizer::ApplyArrays(const Context& context, ArrayShape* array) {
  const Json& schema = context.schema;
  const bool list = schema.contains("items") && schema["items"].is_array();
  const char* prefix = list ? "items" : "prefixItems";
  const char* others = list ? "additionalItems" : "items";
  ArrayShape own;
  if (schema.contains(prefix)) {
    if (!schema[prefix].is_array()) return Error(schema, prefix, "not an array");
    for (const Json& item : schema[prefix]) own.prefix.push_back(terms_.Schema(item));
  }
  if (schema.contains(others)) own.items = terms_.Schema(schema[others]);
  own.evaluated = schema.contains(others) ? kNoLimit : static_cast<int64_t>(own.prefix.size());
  ASSIGN_OR_RETURN(own.min, Count(schema, "minItems", 0));
  ASSIGN_OR_RETURN(own.max, Count(schema, "maxItems", kNoLimit));
  if (schema.contains("contains")) {
    Contains contains = {.item = terms_.Schema(schema["contains"])};
    ASSIGN_OR_RETURN(contains.min, Count(schema, "minContains", 1));
    ASSIGN_OR_RETURN(contains.max, Count(schema, "maxContains", kNoLimit));
    if (contains.min > 0 || contains.max < kNoLimit || context.tracked) {
      own.contains.push_back(contains);
    }
  }
  if (schema.contains("uniqueItems")) {
    if (!schema["uniqueItems"].is_boolean()) return Error(schema, "uniqueItems", "not a boolean");
    own.unique = schema["uniqueItems"].get<bool>();
  }
  const Shapes before = {.arrays = {*array}}, more = {.arrays = {own}};
  ASSIGN_OR_RETURN(const Shapes both, sets_.Intersect(before, more));
  // If nothing is left, use an impossible array: it needs more items than it may have.
  *array = both.arrays.empty() ? ArrayShape{.min = 1, .max = 0} : both.arrays[0];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PropertyRule>> SchemaNormalizer::RulesOf(const Json& schema) {
  std::vector<PropertyRule> rules;
  std::vector<std::string> names;
  std::vector<Regex> keys;
  for (const char* keyword : {"properties", "patternProperties"}) {
    if (!schema.contains(keyword)) continue;
    if (!schema[keyword].is_object()) return Error(schema, keyword, "not an object");
    for (const auto& [key, value] : schema[keyword].items()) {
      PropertyRule rule = {.value = terms_.Schema(value)};
      if (keyword[1] == 'r') {
        rule.keys = pool_.Literal(key);
        rule.name = key;
        names.push_back(key);
      } else {
        const absl::StatusOr<Regex> pattern = ParseRegex(key, RegexScope::kSearch, &pool_);
        if (!pattern.ok()) return Error(schema, keyword, pattern.status().message());
        rule.keys = *pattern;
        rule.is_pattern = true;
        keys.push_back(rule.keys);
      }
      rules.push_back(std::move(rule));
    }
  }
  if (!schema.contains("additionalProperties")) return rules;
  const Term value = terms_.Schema(schema["additionalProperties"]);
  if (value == kTrueTerm) return rules;
  keys.push_back(pool_.Literals(std::move(names)));
  const Regex others = pool_.And({pool_.AnyText(), pool_.Not(pool_.Or(std::move(keys)))});
  rules.push_back({others, std::nullopt, value});
  return rules;
}

// Returns the keys that "propertyNames" allows.
absl::StatusOr<Regex> SchemaNormalizer::NamesRegex(const Json& schema) {
  ASSIGN_OR_RETURN(const Shapes* names, Normalize(terms_.Schema(schema["propertyNames"])));
  return names->strings;
}

absl::Status SchemaNormalizer::ApplyObjects(const Context& context, ObjectShape* object) {
  const Json& schema = context.schema;
  ObjectShape own;
  ASSIGN_OR_RETURN(own.rules, RulesOf(schema));
  if (context.tracked) {
    std::vector<Regex> keys;
    for (const PropertyRule& rule : own.rules) keys.push_back(rule.keys);
    own.evaluated =
        schema.contains("additionalProperties") ? pool_.AnyText() : pool_.Or(std::move(keys));
  }
  if (schema.contains("propertyNames")) {
    ASSIGN_OR_RETURN(const Regex names, NamesRegex(schema));
    if (names != pool_.AnyText()) {
      own.rules.push_back(
          {pool_.And({pool_.AnyText(), pool_.Not(names)}), std::nullopt, kFalseTerm});
    }
  }
  if (schema.contains("required")) {
    if (!schema["required"].is_array()) return Error(schema, "required", "not an array of names");
    for (const Json& name : schema["required"]) {
      if (!name.is_string()) return Error(schema, "required", "not an array of names");
      own.required.push_back(name.get<std::string>());
    }
  }
  ASSIGN_OR_RETURN(own.min, Count(schema, "minProperties", 0));
  ASSIGN_OR_RETURN(own.max, Count(schema, "maxProperties", kNoLimit));
  const Shapes before = {.objects = {*object}}, more = {.objects = {own}};
  ASSIGN_OR_RETURN(const Shapes both, sets_.Intersect(before, more));
  *object = both.objects.empty() ? ObjectShape{.min = 1, .max = 0} : both.objects[0];
  return absl::OkStatus();
}

Term SchemaNormalizer::Has(const std::string& name) {
  made_.push_back({{"type", "object"}, {"required", Json::array({name})}});
  return terms_.Schema(made_.back());
}

Term SchemaNormalizer::Lacks(const std::string& name) {
  made_.push_back({{"properties", Json::object({{name, false}})}});
  return terms_.Schema(made_.back());
}

Term SchemaNormalizer::AnyOfTerm(const Context& context, const Json& list) {
  std::vector<Term> branches;
  for (const Json& branch : list) branches.push_back(Child(context, branch));
  if (!context.tracked) return terms_.Or(std::move(branches));
  // Every branch that matches evaluates properties, so each combination of matching branches is an
  // alternative.
  std::vector<Term> combinations;
  for (size_t bits = 1; bits < size_t{1} << branches.size(); ++bits) {
    std::vector<Term> both;
    for (size_t i = 0; i < branches.size(); ++i) {
      if ((bits >> i & 1) != 0) both.push_back(branches[i]);
    }
    combinations.push_back(terms_.And(std::move(both)));
  }
  return terms_.Or(std::move(combinations));
}

absl::StatusOr<Term> SchemaNormalizer::OneOfTerm(const Context& context, const Json& list) {
  std::vector<Term> plain;
  for (const Json& branch : list) plain.push_back(terms_.Schema(branch));
  std::vector<Term> choices;
  for (size_t i = 0; i < plain.size(); ++i) {
    std::vector<Term> parts = {Child(context, list[i])};
    for (size_t j = 0; j < plain.size() && one_of_ == OneOf::kExact; ++j) {
      if (i == j) continue;
      ASSIGN_OR_RETURN(const Shapes* own, Normalize(plain[i]));
      ASSIGN_OR_RETURN(const Shapes* other, Normalize(plain[j]));
      if (!sets_.Disjoint(*own, *other)) parts.push_back(terms_.Not(plain[j]));
    }
    choices.push_back(terms_.And(std::move(parts)));
  }
  return terms_.Or(std::move(choices));
}

absl::StatusOr<Term> SchemaNormalizer::RefTerm(const Context& context, const std::string& keyword) {
  const Json& schema = context.schema;
  if (!schema[keyword].is_string()) return Error(schema, keyword, "not a string");
  if (schema.contains("$id") && document_.dialect() == Dialect::kUnknown) {
    return Error(schema, keyword, "beside $id it depends on the draft; set $schema");
  }
  const std::string& ref = schema[keyword].get_ref<const std::string&>();
  ASSIGN_OR_RETURN(const Json* target, document_.Resolve(&schema, ref));
  if (keyword == "$dynamicRef") {
    const std::string name = ref.substr(ref.find('#') + 1);
    const bool dynamic = target->is_object() && target->contains("$dynamicAnchor") &&
                         target->at("$dynamicAnchor") == name;
    if (dynamic && document_.DynamicAnchors(name) > 1) {
      return Error(schema, keyword, "several schemas have this $dynamicAnchor; use $ref");
    }
  }
  return Child(context, *target);
}

absl::Status SchemaNormalizer::AddConditions(const Context& context, std::vector<Term>* terms) {
  const Json& schema = context.schema;
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword)) continue;
    if (!schema[keyword].is_object()) return Error(schema, keyword, "not an object");
    for (const auto& [name, value] : schema[keyword].items()) {
      std::vector<Term> parts = {Has(name)};
      if (value.is_array()) {
        for (const Json& other : value) {
          if (!other.is_string()) return Error(schema, keyword, "not an array of names");
          parts.push_back(Has(other.get<std::string>()));
        }
      } else {
        parts.push_back(Child(context, value));
      }
      terms->push_back(terms_.Or({Lacks(name), terms_.And(std::move(parts))}));
    }
  }
  if (!schema.contains("if")) return absl::OkStatus();
  const Json& condition = schema["if"];
  std::vector<Term> yes = {Child(context, condition)};
  std::vector<Term> no = {terms_.Not(terms_.Schema(condition))};
  if (schema.contains("then")) yes.push_back(Child(context, schema["then"]));
  if (schema.contains("else")) no.push_back(Child(context, schema["else"]));
  if (yes.size() + no.size() == 2 && !context.tracked) return absl::OkStatus();
  terms->push_back(terms_.Or({terms_.And(std::move(yes)), terms_.And(std::move(no))}));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Term>> SchemaNormalizer::InPlaceTerms(const Context& context) {
  const Json& schema = context.schema;
  std::vector<Term> terms;
  for (const char* keyword : {"$ref", "$dynamicRef"}) {
    if (!schema.contains(keyword)) continue;
    ASSIGN_OR_RETURN(terms.emplace_back(), RefTerm(context, keyword));
    if (document_.ref_is_alone()) return terms;
  }
  if (schema.contains("$recursiveRef")) {
    return Error(schema, "$recursiveRef", "not supported; use $ref");
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    const Json& list = schema[keyword];
    if (!list.is_array() || list.empty()) return Error(schema, keyword, "not a list of schemas");
    if (keyword[1] == 'l') {
      for (const Json& part : list) terms.push_back(Child(context, part));
    } else if (keyword[1] == 'n' && keyword[0] == 'a') {
      if (context.tracked && list.size() > kMaxTrackedBranches) {
        return Error(schema, keyword,
                     "more than 6 branches with unevaluatedProperties or unevaluatedItems");
      }
      terms.push_back(AnyOfTerm(context, list));
    } else {
      ASSIGN_OR_RETURN(terms.emplace_back(), OneOfTerm(context, list));
    }
  }
  if (schema.contains("not")) terms.push_back(terms_.Not(terms_.Schema(schema["not"])));
  RETURN_IF_ERROR(AddConditions(context, &terms));
  return terms;
}

}  // namespace tidepool::engine::grammar
