#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/tokenizer/jinja/functions.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Items = std::vector<Value>;

absl::StatusOr<Items> SelfItems(const Call& call) {
  ASSIGN_OR_RETURN(Items items, Iterate(call.self));
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(items.size())));
  return items;
}

// "a.b" of a value; a part that is a number is an index.
absl::StatusOr<Value> Dig(const Value& value, const std::string& path) {
  Value found = value;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (found.IsUndefined()) return absl::InvalidArgumentError(found.As<Undefined>()->what);
    int64_t index = 0;
    const Value key = absl::SimpleAtoi(part, &index) ? Value::MakeInt(index)
                                                     : Value::MakeText(part, TextOrigin::kTemplate);
    ASSIGN_OR_RETURN(found, GetItem(found, key));
  }
  return found;
}

Result Length(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("length", {}));
  RETURN_IF_ERROR(call.budget.Visit(call.self));
  ASSIGN_OR_RETURN(const int64_t length, jinja::Length(call.self));
  return Value::MakeInt(length);
}

Result End(const Call& call, bool first) {
  RETURN_IF_ERROR(call.arguments.Check(first ? "first" : "last", {}));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  if (items.empty()) return Value::MakeUndefined("an empty sequence has no first or last item");
  return first ? items.front() : items.back();
}

Result Join(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("join", {"d", "attribute"}));
  ASSIGN_OR_RETURN(const std::optional<Text> glue, call.arguments.FindText(0, "d"));
  ASSIGN_OR_RETURN(const std::optional<Text> attribute, call.arguments.FindText(1, "attribute"));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && glue.has_value()) joined.Append(*glue);
    Value item = items[i];
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(item, Dig(item, attribute->bytes()));
    }
    const Text text = ToText(item);
    RETURN_IF_ERROR(call.budget.Copy(text.size() + (glue.has_value() ? glue->size() : 0)));
    joined.Append(text);
  }
  return Value::MakeText(std::move(joined));
}

Result Reverse(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("reverse", {}));
  ASSIGN_OR_RETURN(Items items, SelfItems(call));
  std::reverse(items.begin(), items.end());
  if (call.self.AsText() == nullptr) return Value::MakeList(std::move(items));
  Text text;
  for (const Value& item : items) text.Append(*item.AsText());
  return Value::MakeText(std::move(text));
}

// `keys` beside `items`, sorted together by key, equal ones in their order.
absl::StatusOr<Items> SortBy(const Items& keys, const Items& items, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  absl::Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const absl::StatusOr<int> compared = Compare(keys[reverse ? b : a], keys[reverse ? a : b]);
    if (!compared.ok()) status = compared.status();
    return compared.ok() && *compared < 0;
  });
  RETURN_IF_ERROR(status);
  Items sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

// Strings compare without their case unless asked, as Jinja does; letters outside ASCII keep
// theirs.
Value SortKey(const Value& value, bool case_sensitive) {
  const Text* text = value.AsText();
  if (text == nullptr || case_sensitive) return value;
  return Value::MakeText(absl::AsciiStrToLower(text->bytes()), text->origin());
}

Result Sort(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("sort", {"reverse", "case_sensitive", "attribute"}));
  const Value* reverse = call.arguments.Find(0, "reverse");
  const Value* case_sensitive = call.arguments.Find(1, "case_sensitive");
  ASSIGN_OR_RETURN(const std::optional<Text> attribute, call.arguments.FindText(2, "attribute"));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Items keys;
  for (const Value& item : items) {
    Value key = item;
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(key, Dig(item, attribute->bytes()));
    }
    keys.push_back(SortKey(key, case_sensitive != nullptr && case_sensitive->Truthy()));
  }
  ASSIGN_OR_RETURN(Items sorted, SortBy(keys, items, reverse != nullptr && reverse->Truthy()));
  return Value::MakeList(std::move(sorted));
}

Items Pairs(const Dict& dict) {
  Items pairs;
  for (const auto& [key, value] : dict.entries()) {
    pairs.push_back(Value::MakeTuple({Value::MakeText(key), value}));
  }
  return pairs;
}

Result DictFilter(const Call& call, bool sorted) {
  RETURN_IF_ERROR(call.arguments.Check(sorted ? "dictsort" : "items", {}));
  if (call.self.IsUndefined() && !sorted) return Value::MakeList({});
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(call.self), " is no dict"));
  }
  Items pairs = Pairs(*dict);
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(pairs.size())));
  if (!sorted) return Value::MakeList(std::move(pairs));
  Items keys;
  for (const auto& [key, unused] : dict->entries()) {
    keys.push_back(SortKey(Value::MakeText(key), /*case_sensitive=*/false));
  }
  ASSIGN_OR_RETURN(pairs, SortBy(keys, pairs, /*reverse=*/false));
  return Value::MakeList(std::move(pairs));
}

Result Unique(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("unique", {}));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Items kept;
  for (const Value& item : items) {
    RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(kept.size())));
    const Value key = SortKey(item, /*case_sensitive=*/false);
    const bool seen = std::any_of(kept.begin(), kept.end(), [&key](const Value& other) {
      return Equals(SortKey(other, /*case_sensitive=*/false), key);
    });
    if (!seen) kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

Result Extreme(const Call& call, absl::string_view name, int sign) {
  RETURN_IF_ERROR(call.arguments.Check(name, {}));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  if (items.empty()) return Value::MakeUndefined("an empty sequence has no extreme item");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const int compared, Compare(items[i], items[best]));
    if (compared * sign > 0) best = i;
  }
  return items[best];
}

Result Map(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Items mapped;
  if (call.arguments.positional.empty()) {
    RETURN_IF_ERROR(call.arguments.Check("map", {"attribute", "default"}));
    ASSIGN_OR_RETURN(const std::optional<Text> attribute, call.arguments.FindText(0, "attribute"));
    const Value* fallback = call.arguments.Find(1, "default");
    if (!attribute.has_value()) {
      return absl::InvalidArgumentError("map needs a filter's name or attribute=");
    }
    for (const Value& item : items) {
      ASSIGN_OR_RETURN(Value value, Dig(item, attribute->bytes()));
      mapped.push_back(value.IsUndefined() && fallback != nullptr ? *fallback : std::move(value));
    }
    return Value::MakeList(std::move(mapped));
  }
  const Text* filter = call.arguments.positional[0].AsText();
  if (filter == nullptr) return absl::InvalidArgumentError("map's first argument names a filter");
  Arguments rest = call.arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value value, ApplyFilter(filter->bytes(), {item, rest, call.budget}));
    mapped.push_back(std::move(value));
  }
  return Value::MakeList(std::move(mapped));
}

// select, reject, selectattr, rejectattr: the items that pass a test, or do not.
Result Select(const Call& call, bool by_attribute, bool wanted) {
  Arguments rest = call.arguments;
  const auto take = [&rest]() -> absl::StatusOr<std::optional<std::string>> {
    if (rest.positional.empty()) return std::optional<std::string>();
    const Text* name = rest.positional.front().AsText();
    if (name == nullptr) {
      return absl::InvalidArgumentError("an attribute and a test are named by strings");
    }
    std::optional<std::string> bytes = name->bytes();
    rest.positional.erase(rest.positional.begin());
    return bytes;
  };
  std::optional<std::string> attribute;
  if (by_attribute) {
    ASSIGN_OR_RETURN(attribute, take());
    if (!attribute.has_value()) return absl::InvalidArgumentError("an attribute's name is missing");
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> test, take());
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Items kept;
  for (const Value& item : items) {
    Value value = item;
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(value, Dig(item, *attribute));
    }
    bool passes = value.Truthy();
    if (test.has_value()) {
      ASSIGN_OR_RETURN(passes, ApplyTest(*test, {value, rest, call.budget}));
    }
    if (passes == wanted) kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

Result ToList(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("list", {}));
  ASSIGN_OR_RETURN(Items items, SelfItems(call));
  return Value::MakeList(std::move(items));
}

Result Sum(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("sum", {"attribute"}));
  ASSIGN_OR_RETURN(const std::optional<Text> attribute, call.arguments.FindText(0, "attribute"));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  int64_t sum = 0;
  for (const Value& item : items) {
    Value value = item;
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(value, Dig(item, attribute->bytes()));
    }
    if (!IsInteger(value) || __builtin_add_overflow(sum, ToInt64(value), &sum)) {
      return absl::UnimplementedError("sum adds integers of 64 bits only");
    }
  }
  return Value::MakeInt(sum);
}

}  // namespace

std::optional<Result> ApplySequenceFilter(absl::string_view name, const Call& call) {
  if (name == "length" || name == "count") return Length(call);
  if (name == "first") return End(call, /*first=*/true);
  if (name == "last") return End(call, /*first=*/false);
  if (name == "join") return Join(call);
  if (name == "list") return ToList(call);
  if (name == "reverse") return Reverse(call);
  if (name == "sort") return Sort(call);
  if (name == "items") return DictFilter(call, /*sorted=*/false);
  if (name == "dictsort") return DictFilter(call, /*sorted=*/true);
  if (name == "unique") return Unique(call);
  if (name == "min") return Extreme(call, name, -1);
  if (name == "max") return Extreme(call, name, 1);
  if (name == "sum") return Sum(call);
  if (name == "map") return Map(call);
  if (name == "select") return Select(call, /*by_attribute=*/false, /*wanted=*/true);
  if (name == "reject") return Select(call, /*by_attribute=*/false, /*wanted=*/false);
  if (name == "selectattr") return Select(call, /*by_attribute=*/true, /*wanted=*/true);
  if (name == "rejectattr") return Select(call, /*by_attribute=*/true, /*wanted=*/false);
  return std::nullopt;
}

}  // namespace tidepool::engine::jinja
