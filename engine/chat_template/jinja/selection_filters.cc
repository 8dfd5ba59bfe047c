// Filters that select, sort or map the items of a sequence.
#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Items = std::vector<Value>;

// Evaluates a path such as "a.b" on a value. If a part is a number, it is an index. If a part is
// undefined, uses `fallback`, if that is not null.
Result Dig(const Value& value, const Value& path, const Value* fallback, Budget* budget) {
  RETURN_IF_ERROR(budget->Visit(path));
  std::vector<Value> keys;
  if (const Text* text = path.AsText()) {
    for (const absl::string_view part : absl::StrSplit(text->bytes(), '.')) {
      int64_t index = 0;
      keys.push_back(absl::SimpleAtoi(part, &index) ? Value::MakeInt(index)
                                                    : Value::MakeText(part, TextOrigin::kTemplate));
    }
  } else {
    keys.push_back(path);
  }
  RETURN_IF_ERROR(budget->Step(static_cast<int64_t>(keys.size())));
  Value found = value;
  for (const Value& key : keys) {
    if (found.IsUndefined()) return absl::InvalidArgumentError(*found.As<Undefined>()->what);
    RETURN_IF_ERROR(budget->Index(found));
    ASSIGN_OR_RETURN(found, GetItem(found, key));
    if (found.IsUndefined() && fallback != nullptr) found = *fallback;
  }
  return found;
}

// Returns the argument `attribute`, or null if it was not given.
const Value* FindAttribute(const Call& call, size_t place) {
  const Value* attribute = call.arguments.Find(place, "attribute");
  return attribute == nullptr || attribute->IsNone() ? nullptr : attribute;
}

// How to get the sort key of an item. By default, strings are compared without case.
struct Order {
  const Value* attribute = nullptr;  // if null, the item itself is the key
  const Value* fallback = nullptr;   // used if the attribute is undefined; may be null
  bool case_sensitive = false;
};
Result OrderKey(const Value& item, const Order& order, Budget* budget) {
  Value key = item;
  if (order.attribute != nullptr) {
    ASSIGN_OR_RETURN(key, Dig(item, *order.attribute, order.fallback, budget));
  }
  if (key.AsText() == nullptr || order.case_sensitive) return key;
  RETURN_IF_ERROR(budget->Characters(key.AsText()->size()));
  return Value::MakeText(ChangeCase(*key.AsText(), LetterCase::kLower));
}

absl::StatusOr<Items> OrderKeys(const Items& items, const Order& order, Budget* budget) {
  Items keys;
  RETURN_IF_ERROR(budget->Texts(items.size()));
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, OrderKey(item, order, budget));
    RETURN_IF_ERROR(budget->Visit(key));
    keys.push_back(std::move(key));
  }
  return keys;
}

// Returns `items` sorted by `keys`. The sort is stable.
absl::StatusOr<Items> SortBy(const Items& keys, const Items& items, bool reverse, Budget* budget) {
  // Each key is compared about log2(n) times.
  const auto halvings = static_cast<int64_t>(std::bit_width(keys.size()));
  for (const Value& key : keys) {
    RETURN_IF_ERROR(budget->Step(halvings));
    if (key.AsList() == nullptr) continue;
    for (int64_t i = 0; i < halvings; ++i) RETURN_IF_ERROR(budget->Visit(key));
  }
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

Result Sort(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("sort", {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = call.arguments.FindFlag(1, "case_sensitive");
  const Value* attribute = FindAttribute(call, 2);
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Items keys(items.size());
  // "a,b" means: sort by a, and by b if a is equal.
  std::vector<Value> paths;
  if (attribute != nullptr && attribute->AsText() != nullptr) {
    for (const absl::string_view path : absl::StrSplit(attribute->AsText()->bytes(), ',')) {
      paths.push_back(Value::MakeText(path, TextOrigin::kTemplate));
    }
  } else if (attribute != nullptr) {
    paths.push_back(*attribute);
  }
  if (paths.size() <= 1) {
    const Value* path = paths.empty() ? nullptr : &paths[0];
    ASSIGN_OR_RETURN(keys, OrderKeys(items, {path, nullptr, case_sensitive}, &call.budget));
  } else {
    for (size_t i = 0; i < items.size(); ++i) {
      Items parts;
      for (const Value& path : paths) {
        ASSIGN_OR_RETURN(Items part,
                         OrderKeys({items[i]}, {&path, nullptr, case_sensitive}, &call.budget));
        parts.push_back(std::move(part[0]));
      }
      keys[i] = Value::MakeList(std::move(parts));
    }
  }
  ASSIGN_OR_RETURN(Items sorted,
                   SortBy(keys, items, call.arguments.FindFlag(0, "reverse"), &call.budget));
  return Value::MakeList(std::move(sorted));
}

Result DictSort(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("dictsort", {"case_sensitive", "by", "reverse"}));
  ASSIGN_OR_RETURN(const std::optional<Text> by, call.arguments.FindText(1, "by"));
  const std::string what = by.has_value() ? by->bytes() : "key";
  if (what != "key" && what != "value") {
    return absl::InvalidArgumentError("dictsort can sort only by 'key' or 'value'");
  }
  const Arguments none;
  ASSIGN_OR_RETURN(const Value generator, ApplyFilter("items", {call.self, none, call.budget}));
  ASSIGN_OR_RETURN(const Items pairs, Iterate(generator));
  const Value place = Value::MakeInt(what == "key" ? 0 : 1);
  const Order order = {&place, nullptr, call.arguments.FindFlag(0, "case_sensitive")};
  ASSIGN_OR_RETURN(const Items keys, OrderKeys(pairs, order, &call.budget));
  ASSIGN_OR_RETURN(Items sorted,
                   SortBy(keys, pairs, call.arguments.FindFlag(2, "reverse"), &call.budget));
  return Value::MakeList(std::move(sorted));
}

Result Unique(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("unique", {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  const Order order = {FindAttribute(call, 1), nullptr,
                       call.arguments.FindFlag(0, "case_sensitive")};
  ASSIGN_OR_RETURN(const Items keys, OrderKeys(items, order, &call.budget));
  absl::flat_hash_set<std::string> seen;
  Items kept;
  for (size_t i = 0; i < items.size(); ++i) {
    std::optional<std::string> hashed = HashText(keys[i]);
    if (!hashed.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unique cannot compare values of type ", TypeName(keys[i])));
    }
    if (seen.insert(*std::move(hashed)).second) kept.push_back(items[i]);
  }
  return Value::MakeGenerator(std::move(kept));
}

template <int kSign>
Result Extreme(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("min and max", {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  if (items.empty()) {
    return Value::MakeUndefined("an empty sequence has no smallest or largest item");
  }
  const Order order = {FindAttribute(call, 1), nullptr,
                       call.arguments.FindFlag(0, "case_sensitive")};
  ASSIGN_OR_RETURN(const Items keys, OrderKeys(items, order, &call.budget));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    RETURN_IF_ERROR(call.budget.Visit(keys[i]));
    ASSIGN_OR_RETURN(const int compared, Compare(keys[i], keys[best]));
    if (compared * kSign > 0) best = i;
  }
  return items[best];
}

Result GroupBy(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("groupby", {"attribute", "default", "case_sensitive"}));
  const Value* attribute = FindAttribute(call, 0);
  if (attribute == nullptr) return absl::InvalidArgumentError("groupby needs an attribute");
  const Value* given = call.arguments.Find(1, "default");
  const Value* fallback = given == nullptr || given->IsNone() ? nullptr : given;
  const Order order = {attribute, fallback, call.arguments.FindFlag(2, "case_sensitive")};
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  ASSIGN_OR_RETURN(const Items keys, OrderKeys(items, order, &call.budget));
  ASSIGN_OR_RETURN(const Items sorted, SortBy(keys, items, false, &call.budget));
  RETURN_IF_ERROR(call.budget.Texts(items.size()));
  Items groups;
  for (size_t begin = 0; begin < sorted.size();) {
    // The name of a group is that of its first item.
    ASSIGN_OR_RETURN(const Value name, Dig(sorted[begin], *attribute, fallback, &call.budget));
    ASSIGN_OR_RETURN(const Value key, OrderKey(sorted[begin], order, &call.budget));
    Items members;
    while (begin < sorted.size()) {
      ASSIGN_OR_RETURN(const Value other, OrderKey(sorted[begin], order, &call.budget));
      RETURN_IF_ERROR(call.budget.Visit(other));
      if (!Equals(key, other)) break;
      members.push_back(sorted[begin++]);
    }
    groups.push_back(MakeSequence({name, Value::MakeList(std::move(members))}, List::Kind::kGroup));
  }
  return Value::MakeList(std::move(groups));
}

Result Sum(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("sum", {"attribute", "start"}));
  const Value* attribute = FindAttribute(call, 0);
  const Value* start = call.arguments.Find(1, "start");
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Value sum = start != nullptr ? *start : Value::MakeInt(0);
  if (sum.AsText() != nullptr)
    return absl::InvalidArgumentError("sum cannot add strings; use join");
  for (const Value& item : items) {
    Value value = item;
    if (attribute != nullptr) {
      ASSIGN_OR_RETURN(value, Dig(item, *attribute, nullptr, &call.budget));
    }
    ASSIGN_OR_RETURN(sum, ApplyOperator("+", sum, value, &call.budget));
  }
  return sum;
}

Result Join(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("join", {"d", "attribute"}));
  const Value* given = call.arguments.Find(0, "d");
  const Arguments none;
  Text glue;
  if (given != nullptr) {
    ASSIGN_OR_RETURN(glue, SelfText({*given, none, call.budget}));
  }
  const Value* attribute = FindAttribute(call, 1);
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (attribute != nullptr) {
      ASSIGN_OR_RETURN(item, Dig(item, *attribute, nullptr, &call.budget));
    }
    ASSIGN_OR_RETURN(const Text text, SelfText({item, none, call.budget}));
    RETURN_IF_ERROR(call.budget.Copy(glue.size()));
    RETURN_IF_ERROR(call.budget.CheckText(joined.size() + glue.size() + text.size()));
    if (i > 0) joined.Append(glue);
    joined.Append(text);
  }
  return Value::MakeText(std::move(joined));
}

// Returns the items for map, select and similar filters. They treat a value that is false as an
// empty sequence.
absl::StatusOr<Items> ItemsIfTrue(const Call& call) {
  if (!call.self.Truthy()) return Items();
  return SelfItems(call);
}

Result Map(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, ItemsIfTrue(call));
  RETURN_IF_ERROR(call.budget.Texts(items.size()));
  Items mapped;
  if (call.arguments.positional.empty()) {
    RETURN_IF_ERROR(call.arguments.Check("map", {"attribute", "default"}));
    const Value* attribute = FindAttribute(call, 0);
    const Value* given = call.arguments.Find(1, "default");
    const Value* fallback = given == nullptr || given->IsNone() ? nullptr : given;
    if (attribute == nullptr) {
      return absl::InvalidArgumentError("map needs a filter's name or attribute=");
    }
    for (const Value& item : items) {
      ASSIGN_OR_RETURN(Value value, Dig(item, *attribute, fallback, &call.budget));
      mapped.push_back(std::move(value));
    }
    return Value::MakeGenerator(std::move(mapped));
  }
  const Text* filter = call.arguments.positional[0].AsText();
  if (filter == nullptr)
    return absl::InvalidArgumentError("map's first argument must be a filter's name");
  Arguments rest = call.arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value value, ApplyFilter(filter->bytes(), {item, rest, call.budget}));
    mapped.push_back(std::move(value));
  }
  return Value::MakeGenerator(std::move(mapped));
}

// Implements select, reject, selectattr and rejectattr. They keep the items that pass a test, or
// the items that do not.
template <bool kByAttribute, bool kWanted>
Result Select(const Call& call) {
  Arguments rest = call.arguments;
  std::optional<Value> attribute;
  std::optional<std::string> test;
  if (kByAttribute) {
    if (rest.positional.empty()) {
      return absl::InvalidArgumentError("an attribute's name is missing");
    }
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  if (!rest.positional.empty()) {
    if (rest.positional.front().AsText() == nullptr) {
      return absl::InvalidArgumentError("a test's name must be a string");
    }
    test = rest.positional.front().AsText()->bytes();
    rest.positional.erase(rest.positional.begin());
  }
  ASSIGN_OR_RETURN(const Items items, ItemsIfTrue(call));
  Items kept;
  for (const Value& item : items) {
    Value value = item;
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(value, Dig(item, *attribute, nullptr, &call.budget));
    }
    bool passes = value.Truthy();
    if (test.has_value()) {
      ASSIGN_OR_RETURN(passes, ApplyTest(*test, {value, rest, call.budget}));
    }
    if (passes == kWanted) kept.push_back(item);
  }
  return Value::MakeGenerator(std::move(kept));
}

constexpr NamedFunction kFilters[] = {
    {"sort", Sort},
    {"dictsort", DictSort},
    {"unique", Unique},
    {"min", Extreme<-1>},
    {"max", Extreme<1>},
    {"groupby", GroupBy},
    {"sum", Sum},
    {"join", Join},
    {"map", Map},
    {"select", Select<false, true>},
    {"reject", Select<false, false>},
    {"selectattr", Select<true, true>},
    {"rejectattr", Select<true, false>},
};

}  // namespace

absl::Span<const NamedFunction> SelectionFilters() { return kFilters; }

}  // namespace tidepool::engine::jinja
