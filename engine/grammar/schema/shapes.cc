#include "engine/grammar/schema/shapes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {
namespace {

// Adds an alternative unless it is there already.
template <typename Shape>
absl::Status AddAlternative(Shape shape, std::vector<Shape>* list) {
  if (std::find(list->begin(), list->end(), shape) != list->end()) return absl::OkStatus();
  if (list->size() >= kMaxAlternatives) {
    return absl::InvalidArgumentError(
        absl::StrCat("the combination has more than ", kMaxAlternatives,
                     " alternatives; use fewer, or separate them by a required property with a "
                     "const value"));
  }
  list->push_back(std::move(shape));
  return absl::OkStatus();
}

}  // namespace

Shapes ShapeSets::Everything() {
  return {.null = true,
          .yes = true,
          .no = true,
          .numbers = numbers_.full(),
          .strings = pool_.AnyText(),
          .escapes = Escapes::kAny,
          .arrays = {ArrayShape()},
          .objects = {ObjectShape()}};
}

Regex ShapeSets::IntersectNumbers(Regex a, Regex b) { return numbers_.Intersect(a, b); }

Regex ShapeSets::IntersectStrings(Regex a, Regex b) {
  if (a == pool_.AnyText() || a == b) return b;
  if (b == pool_.AnyText()) return a;
  const Regex both = pool_.And({a, b});
  return pool_.IsNothing(both) ? kNoRegex : both;
}

absl::StatusOr<Shapes> ShapeSets::Intersect(const Shapes& a, const Shapes& b) {
  Shapes result = {.null = a.null && b.null,
                   .yes = a.yes && b.yes,
                   .no = a.no && b.no,
                   .numbers = IntersectNumbers(a.numbers, b.numbers),
                   .strings = IntersectStrings(a.strings, b.strings)};
  const bool needed = a.escapes == Escapes::kNeeded || b.escapes == Escapes::kNeeded;
  result.escapes = needed ? Escapes::kNeeded : Escapes::kAny;
  for (const ArrayShape& left : a.arrays) {
    for (const ArrayShape& right : b.arrays) {
      ArrayShape both = IntersectArrays(left, right);
      if (!IsImpossible(both)) RETURN_IF_ERROR(AddAlternative(std::move(both), &result.arrays));
    }
  }
  for (const ObjectShape& left : a.objects) {
    for (const ObjectShape& right : b.objects) {
      ObjectShape both = IntersectObjects(left, right);
      if (!IsImpossible(both)) RETURN_IF_ERROR(AddAlternative(std::move(both), &result.objects));
    }
  }
  return result;
}

absl::Status ShapeSets::Add(const Shapes& more, Shapes* shapes) {
  shapes->null |= more.null;
  shapes->yes |= more.yes;
  shapes->no |= more.no;
  shapes->numbers = pool_.Or({shapes->numbers, more.numbers});
  if (more.strings != kNoRegex && more.escapes == Escapes::kNeeded) {
    shapes->escapes = Escapes::kNeeded;
  }
  shapes->strings = pool_.Or({shapes->strings, more.strings});
  // If all texts are allowed, all spellings are allowed, too.
  if (shapes->strings == pool_.AnyText()) shapes->escapes = Escapes::kAny;
  for (const ArrayShape& array : more.arrays) {
    RETURN_IF_ERROR(AddAlternative(array, &shapes->arrays));
  }
  for (const ObjectShape& object : more.objects) {
    RETURN_IF_ERROR(AddAlternative(object, &shapes->objects));
  }
  return absl::OkStatus();
}

ArrayShape ShapeSets::IntersectArrays(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape result;
  const auto prefix = static_cast<int64_t>(std::max(a.prefix.size(), b.prefix.size()));
  for (int64_t i = 0; i < prefix; ++i) {
    result.prefix.push_back(terms_.And({a.ItemAt(i), b.ItemAt(i)}));
  }
  result.items = terms_.And({a.items, b.items});
  result.min = std::max(a.min, b.min);
  result.max = std::min(a.max, b.max);
  result.contains = a.contains;
  for (const Contains& contains : b.contains) {
    if (std::find(a.contains.begin(), a.contains.end(), contains) == a.contains.end()) {
      result.contains.push_back(contains);
    }
  }
  result.unique = a.unique || b.unique;
  result.evaluated = std::max(a.evaluated, b.evaluated);
  return result;
}

ObjectShape ShapeSets::IntersectObjects(const ObjectShape& a, const ObjectShape& b) {
  ObjectShape result = a;
  for (const PropertyRule& rule : b.rules) {
    if (std::find(a.rules.begin(), a.rules.end(), rule) == a.rules.end()) {
      result.rules.push_back(rule);
    }
  }
  for (const std::string& name : b.required) {
    if (std::find(a.required.begin(), a.required.end(), name) == a.required.end()) {
      result.required.push_back(name);
    }
  }
  for (const Regex keys : b.exists) {
    if (std::find(a.exists.begin(), a.exists.end(), keys) == a.exists.end()) {
      result.exists.push_back(keys);
    }
  }
  result.min = std::max(a.min, b.min);
  result.max = std::min(a.max, b.max);
  result.evaluated = pool_.Or({a.evaluated, b.evaluated});
  return result;
}

Term ShapeSets::ValueOf(const ObjectShape& object, const std::string& key) {
  std::vector<Term> parts;
  for (const PropertyRule& rule : object.rules) {
    if (rule.name.has_value() ? *rule.name == key : pool_.Matches(rule.keys, key)) {
      parts.push_back(rule.value);
    }
  }
  return terms_.And(std::move(parts));
}

bool ShapeSets::IsImpossible(const ObjectShape& object) {
  if (object.min > object.max || static_cast<int64_t>(object.required.size()) > object.max) {
    return true;
  }
  for (const std::string& name : object.required) {
    if (is_nothing_(ValueOf(object, name))) return true;
  }
  return false;
}

bool ShapeSets::IsImpossible(const ArrayShape& array) {
  if (array.min > array.max) return true;
  const int64_t items = std::min<int64_t>(array.min, static_cast<int64_t>(array.prefix.size()) + 1);
  for (int64_t i = 0; i < items; ++i) {
    if (is_nothing_(array.ItemAt(i))) return true;
  }
  return false;
}

bool ShapeSets::Disjoint(const Shapes& a, const Shapes& b) {
  if ((a.null && b.null) || (a.yes && b.yes) || (a.no && b.no)) return false;
  if (IntersectNumbers(a.numbers, b.numbers) != kNoRegex) return false;
  if (IntersectStrings(a.strings, b.strings) != kNoRegex) return false;
  for (const ArrayShape& left : a.arrays) {
    for (const ArrayShape& right : b.arrays) {
      if (!IsImpossible(IntersectArrays(left, right))) return false;
    }
  }
  for (const ObjectShape& left : a.objects) {
    for (const ObjectShape& right : b.objects) {
      if (!IsImpossible(IntersectObjects(left, right))) return false;
    }
  }
  return true;
}

}  // namespace tidepool::engine::grammar
