#include "engine/tokenizer/jinja/value.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

int Sign(double difference) { return difference < 0 ? -1 : difference > 0 ? 1 : 0; }

bool ListsEqual(const List& a, const List& b) {
  return a.is_tuple == b.is_tuple &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), Equals);
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key.bytes());
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

}  // namespace

Value Value::MakeList(std::vector<Value> items) {
  return Value(std::make_shared<const List>(List{std::move(items), false}));
}

Value Value::MakeTuple(std::vector<Value> items) {
  return Value(std::make_shared<const List>(List{std::move(items), true}));
}

Value Value::MakeDict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (const bool* value = As<bool>()) return *value;
  if (const int64_t* value = As<int64_t>()) return *value != 0;
  if (const double* value = As<double>()) return *value != 0;
  if (const Text* text = AsText()) return !text->empty();
  if (const List* list = AsList()) return !list->items.empty();
  if (const Dict* dict = AsDict()) return dict->size() != 0;
  return true;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

void Dict::Set(Text key, Value value) {
  const auto [it, added] = index_.try_emplace(key.bytes(), entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

absl::string_view TypeName(const Value& value) {
  if (value.IsUndefined()) return "undefined";
  if (value.IsNone()) return "NoneType";
  if (value.As<bool>() != nullptr) return "bool";
  if (value.As<int64_t>() != nullptr) return "int";
  if (value.As<double>() != nullptr) return "float";
  if (value.AsText() != nullptr) return "str";
  if (const List* list = value.AsList()) return list->is_tuple ? "tuple" : "list";
  if (value.AsDict() != nullptr) return "dict";
  if (value.AsNamespace() != nullptr) return "namespace";
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
  if (a.AsCallable() != nullptr) return a.AsCallable() == b.AsCallable();
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b)) {
    const int64_t left = ToInt64(a);
    const int64_t right = ToInt64(b);
    return left < right ? -1 : left > right ? 1 : 0;
  }
  if (IsNumber(a) && IsNumber(b)) return Sign(ToDouble(a) - ToDouble(b));
  // Bytes of UTF-8 sort as code points do.
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    return Sign(a.AsText()->bytes().compare(b.AsText()->bytes()));
  }
  if (a.AsList() != nullptr && b.AsList() != nullptr) return CompareLists(*a.AsList(), *b.AsList());
  if (a.IsUndefined()) return absl::InvalidArgumentError(a.As<Undefined>()->what);
  if (b.IsUndefined()) return absl::InvalidArgumentError(b.As<Undefined>()->what);
  return absl::InvalidArgumentError(
      absl::StrCat("values of types ", TypeName(a), " and ", TypeName(b), " have no order"));
}

absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle) {
  if (const Text* text = haystack.AsText()) {
    if (needle.AsText() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'in' a string needs a string, not ", TypeName(needle)));
    }
    return absl::StrContains(text->bytes(), needle.AsText()->bytes());
  }
  if (const Dict* dict = haystack.AsDict()) {
    return needle.AsText() != nullptr && dict->Find(needle.AsText()->bytes()) != nullptr;
  }
  if (const List* list = haystack.AsList()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&needle](const Value& item) { return Equals(item, needle); });
  }
  if (haystack.IsUndefined()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("'in' cannot look into a value of type ", TypeName(haystack)));
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value) {
  std::vector<Value> items;
  if (const List* list = value.AsList()) {
    items = list->items;
  } else if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, unused] : dict->entries()) items.push_back(Value::MakeText(key));
  } else if (const Text* text = value.AsText()) {
    for (size_t at = 0; at < text->size();) {
      const size_t size = NextUtf8Char(absl::string_view(text->bytes()).substr(at)).size;
      items.push_back(Value::MakeText(text->Slice(at, at + size)));
      at += size;
    }
  } else if (!value.IsUndefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(value), " has no items to go through"));
  }
  return items;
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (const Text* text = value.AsText()) {
    return std::count_if(text->bytes().begin(), text->bytes().end(),
                         [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  }
  if (const List* list = value.AsList()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.AsDict()) return static_cast<int64_t>(dict->size());
  if (value.IsUndefined()) return 0;
  return absl::InvalidArgumentError(
      absl::StrCat("a value of type ", TypeName(value), " has no length"));
}

}  // namespace tidepool::engine::jinja
