#include "engine/chat_template/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

int Sign(double difference) { return difference < 0 ? -1 : difference > 0 ? 1 : 0; }

bool ListsEqual(const List& a, const List& b) {
  if (a.kind != b.kind && !(a.IsTuple() && b.IsTuple())) return false;
  if (a.kind == List::Kind::kGenerator || a.kind == List::Kind::kValues) return &a == &b;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), Equals);
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equals(value, *other)) return false;
  }
  return true;
}

absl::StatusOr<int> CompareLists(const List& a, const List& b) {
  const size_t size = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < size; ++i) {
    if (Equals(a.items[i], b.items[i])) continue;
    return Compare(a.items[i], b.items[i]);
  }
  return Sign(static_cast<double>(a.items.size()) - static_cast<double>(b.items.size()));
}

// Only two lists or two tuples can be ordered.
bool HaveOrder(const List& a, const List& b) {
  return (a.IsTuple() && b.IsTuple()) ||
         (a.kind == List::Kind::kList && b.kind == List::Kind::kList);
}

absl::Status NoOrder(const Value& a, const Value& b) {
  if (a.IsUndefined()) return absl::InvalidArgumentError(*a.As<Undefined>()->what);
  if (b.IsUndefined()) return absl::InvalidArgumentError(*b.As<Undefined>()->what);
  return absl::InvalidArgumentError(
      absl::StrCat("values of types ", TypeName(a), " and ", TypeName(b), " cannot be ordered"));
}

absl::string_view ListTypeName(List::Kind kind) {
  switch (kind) {
    case List::Kind::kList:
      return "list";
    case List::Kind::kTuple:
    case List::Kind::kGroup:
      return "tuple";
    case List::Kind::kRange:
      return "range";
    case List::Kind::kKeys:
      return "dict_keys";
    case List::Kind::kValues:
      return "dict_values";
    case List::Kind::kItems:
      return "dict_items";
    case List::Kind::kGenerator:
      return "generator";
  }
  return "list";
}

}  // namespace

void Extent::Add(const Extent& part) {
  depth = std::max(depth, part.depth + 1);
  if (__builtin_add_overflow(weight, part.weight, &weight)) {
    weight = std::numeric_limits<int64_t>::max();
  }
}

Value Value::MakeUndefined(std::string what) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
}

Value MakeSequence(std::vector<Value> items, List::Kind kind, std::string range_text) {
  Extent extent = {2, 1};
  for (const Value& item : items) extent.Add(item.extent());
  return Value(
      std::make_shared<const List>(List{std::move(items), kind, extent, std::move(range_text), 0}));
}

Value Value::MakeList(std::vector<Value> items) {
  return MakeSequence(std::move(items), List::Kind::kList);
}

Value Value::MakeTuple(std::vector<Value> items) {
  return MakeSequence(std::move(items), List::Kind::kTuple);
}

Value Value::MakeGenerator(std::vector<Value> items) {
  return MakeSequence(std::move(items), List::Kind::kGenerator);
}

Value Value::MakeDict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (const bool* value = As<bool>()) return *value;
  if (const int64_t* value = As<int64_t>()) return *value != 0;
  if (const double* value = As<double>()) return *value != 0;
  if (const Text* text = AsText()) return !text->empty();
  if (const List* list = AsList()) {
    return list->kind == List::Kind::kGenerator || !list->items.empty();
  }
  if (const Dict* dict = AsDict()) return dict->size() != 0;
  return true;
}

Extent Value::extent() const {
  if (const Text* text = AsText()) return {1, static_cast<int64_t>(text->size()) + 1};
  if (const List* list = AsList()) return list->extent;
  if (const Dict* dict = AsDict()) return dict->extent();
  if (const LoopState* loop = AsLoop()) return loop->extent;
  if (const Carousel* carousel = AsCarousel()) return carousel->extent;
  Extent extent;
  if (const Callable* callable = AsCallable(); callable != nullptr && !callable->name.empty()) {
    extent.Add(callable->self.extent());
  }
  return extent;
}

namespace {

// Appends a text that identifies `value` among all values. Returns false if Python cannot hash the
// value. The text of every part shows where the part ends, so nested tuples need no copies.
bool AppendHashText(const Value& value, std::string* hashed) {
  if (const Text* text = value.AsText()) {
    absl::StrAppend(hashed, "s", text->size(), ":", text->bytes());
    return true;
  }
  if (const List* list = value.AsList(); list != nullptr && list->IsTuple()) {
    absl::StrAppend(hashed, "t", list->items.size(), ":");
    return std::all_of(list->items.begin(), list->items.end(),
                       [hashed](const Value& item) { return AppendHashText(item, hashed); });
  }
  if (value.IsNone()) {
    hashed->append("none;");
  } else if (value.IsUndefined()) {
    hashed->append("undefined;");
  } else if (IsInteger(value)) {
    absl::StrAppend(hashed, "n", ToInt64(value), ";");
  } else if (const double* number = value.As<double>()) {
    // below this, a float that is a whole number is the same key as the integer
    constexpr double kExact = 9e18;
    if (std::abs(*number) < kExact && *number == std::floor(*number)) {
      absl::StrAppend(hashed, "n", static_cast<int64_t>(*number), ";");
    } else {
      absl::StrAppend(hashed, "f", FormatFloat(*number), ";");
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> HashText(const Value& value) {
  std::string hashed;
  if (!AppendHashText(value, &hashed)) return std::nullopt;
  return hashed;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Value* Dict::Find(const Value& key) const {
  if (const Text* text = key.AsText()) return Find(text->bytes());
  if (others_.empty()) return nullptr;
  const std::optional<std::string> hashed = HashText(key);
  if (!hashed.has_value()) return nullptr;
  const auto it = others_.find(*hashed);
  return it == others_.end() ? nullptr : &entries_[it->second].second;
}

void Dict::SetAt(absl::flat_hash_map<std::string, size_t>* index, std::string hashed, Value key,
                 Value value) {
  const auto [it, added] = index->try_emplace(std::move(hashed), entries_.size());
  extent_.Add(value.extent());
  if (added) {
    extent_.Add(key.extent());
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

void Dict::Set(Text key, Value value) {
  std::string bytes = key.bytes();
  SetAt(&index_, std::move(bytes), Value::MakeText(std::move(key)), std::move(value));
}

absl::Status Dict::Set(Value key, Value value) {
  if (const Text* text = key.AsText()) {
    SetAt(&index_, text->bytes(), std::move(key), std::move(value));
    return absl::OkStatus();
  }
  std::optional<std::string> hashed = HashText(key);
  if (!hashed.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(key), " cannot be a dict's key"));
  }
  SetAt(&others_, *std::move(hashed), std::move(key), std::move(value));
  return absl::OkStatus();
}

absl::string_view TypeName(const Value& value) {
  if (value.IsUndefined()) return "undefined";
  if (value.IsNone()) return "NoneType";
  if (value.As<bool>() != nullptr) return "bool";
  if (value.As<int64_t>() != nullptr) return "int";
  if (value.As<double>() != nullptr) return "float";
  if (value.AsText() != nullptr) return "str";
  if (const List* list = value.AsList()) return ListTypeName(list->kind);
  if (value.AsDict() != nullptr) return "dict";
  if (value.AsNamespace() != nullptr) return "namespace";
  if (const Carousel* carousel = value.AsCarousel()) {
    return carousel->is_joiner ? "joiner" : "cycler";
  }
  return value.AsLoop() != nullptr ? "loop" : "function";
}

bool IsInteger(const Value& value) {
  return value.As<int64_t>() != nullptr || value.As<bool>() != nullptr;
}

bool IsNumber(const Value& value) { return IsInteger(value) || value.As<double>() != nullptr; }

int64_t ToInt64(const Value& value) {
  if (const bool* flag = value.As<bool>()) return *flag ? 1 : 0;
  return *value.As<int64_t>();
}

double ToDouble(const Value& value) {
  if (const double* number = value.As<double>()) return *number;
  return static_cast<double>(ToInt64(value));
}

bool Equals(const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b)) return ToInt64(a) == ToInt64(b);
  if (IsNumber(a) && IsNumber(b)) return ToDouble(a) == ToDouble(b);
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    return a.AsText()->bytes() == b.AsText()->bytes();
  }
  if (a.AsList() != nullptr && b.AsList() != nullptr) return ListsEqual(*a.AsList(), *b.AsList());
  if (a.AsDict() != nullptr && b.AsDict() != nullptr) return DictsEqual(*a.AsDict(), *b.AsDict());
  if (a.AsNamespace() != nullptr) return a.AsNamespace() == b.AsNamespace();
  if (a.AsLoop() != nullptr) return a.AsLoop() == b.AsLoop();
  if (a.AsCarousel() != nullptr) return a.AsCarousel() == b.AsCarousel();
  if (a.AsCallable() != nullptr) return a.AsCallable() == b.AsCallable();
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b)) {
    const int64_t left = ToInt64(a);
    const int64_t right = ToInt64(b);
    return left < right ? -1 : left > right ? 1 : 0;
  }
  if (IsNumber(a) && IsNumber(b)) {
    const double left = ToDouble(a);
    const double right = ToDouble(b);
    return left < right ? -1 : left > right ? 1 : 0;
  }
  // The bytes of UTF-8 have the same order as the code points.
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    return Sign(a.AsText()->bytes().compare(b.AsText()->bytes()));
  }
  if (a.AsList() != nullptr && b.AsList() != nullptr && HaveOrder(*a.AsList(), *b.AsList())) {
    return CompareLists(*a.AsList(), *b.AsList());
  }
  return NoOrder(a, b);
}

absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle) {
  if (const Text* text = haystack.AsText()) {
    if (needle.AsText() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'in' a string needs a string, not ", TypeName(needle)));
    }
    return FindText(text->bytes(), needle.AsText()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = haystack.AsDict()) {
    if (needle.AsText() == nullptr && !HashText(needle).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a value of type ", TypeName(needle), " cannot be a dict's key"));
    }
    return dict->Find(needle) != nullptr;
  }
  if (haystack.AsList() != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(haystack));
    return std::any_of(items.begin(), items.end(),
                       [&needle](const Value& item) { return Equals(item, needle); });
  }
  if (haystack.IsUndefined()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("'in' cannot search a value of type ", TypeName(haystack)));
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value) {
  std::vector<Value> items;
  if (const List* list = value.AsList()) {
    if (list->kind != List::Kind::kGenerator) return list->items;
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->taken), list->items.end());
    list->taken = list->items.size();
  } else if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
  } else if (const Text* text = value.AsText()) {
    for (size_t at = 0; at < text->size();) {
      const size_t size = base::NextUtf8Char(absl::string_view(text->bytes()).substr(at)).size;
      items.push_back(Value::MakeText(text->Slice(at, at + size)));
      at += size;
    }
  } else if (!value.IsUndefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(value), " is not iterable"));
  }
  return items;
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (const Text* text = value.AsText()) {
    return std::count_if(text->bytes().begin(), text->bytes().end(),
                         [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  }
  const List* list = value.AsList();
  if (list != nullptr && list->kind != List::Kind::kGenerator) {
    return static_cast<int64_t>(list->items.size());
  }
  if (const Dict* dict = value.AsDict()) return static_cast<int64_t>(dict->size());
  if (const LoopState* loop = value.AsLoop()) return static_cast<int64_t>(loop->items.size());
  if (value.IsUndefined()) return 0;
  return absl::InvalidArgumentError(
      absl::StrCat("a value of type ", TypeName(value), " has no length"));
}

}  // namespace tidepool::engine::jinja
