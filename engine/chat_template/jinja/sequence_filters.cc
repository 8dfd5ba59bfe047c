// Filters for lists and mappings.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Items = std::vector<Value>;

Result LengthFilter(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("length", {}));
  if (const Text* text = call.self.AsText()) RETURN_IF_ERROR(call.budget.Copy(text->size()));
  ASSIGN_OR_RETURN(const int64_t length, Length(call.self));
  return Value::MakeInt(length);
}

Result First(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("first", {}));
  const List* list = call.self.AsList();
  if (list != nullptr && list->kind == List::Kind::kGenerator) {
    if (list->taken < list->items.size()) return list->items[list->taken++];
    return Value::MakeUndefined("an empty sequence has no first item");
  }
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  if (!items.empty()) return items.front();
  return Value::MakeUndefined("an empty sequence has no first item");
}

absl::Status CheckNoGenerator(const Value& value, absl::string_view filter) {
  const List* list = value.AsList();
  if (list == nullptr || list->kind != List::Kind::kGenerator) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the filter '", filter, "' cannot read a generator from its end; write '| list' before it"));
}

Result Last(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("last", {}));
  RETURN_IF_ERROR(CheckNoGenerator(call.self, "last"));
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  if (!items.empty()) return items.back();
  return Value::MakeUndefined("an empty sequence has no last item");
}

Result Reverse(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("reverse", {}));
  ASSIGN_OR_RETURN(Items items, SelfItems(call));
  std::reverse(items.begin(), items.end());
  if (call.self.AsText() == nullptr) return Value::MakeGenerator(std::move(items));
  Text text;
  for (const Value& item : items) text.Append(*item.AsText());
  return Value::MakeText(std::move(text));
}

Result ToList(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("list", {}));
  ASSIGN_OR_RETURN(Items items, SelfItems(call));
  return Value::MakeList(std::move(items));
}

Result ItemsFilter(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("items", {}));
  if (call.self.IsUndefined()) return Value::MakeGenerator({});
  const Dict* dict = call.self.AsDict();
  if (dict == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("items of a value of type ", TypeName(call.self), ", which is not a dict"));
  }
  RETURN_IF_ERROR(call.budget.Texts(dict->size()));
  Items pairs;
  for (const auto& [key, value] : dict->entries()) pairs.push_back(Value::MakeTuple({key, value}));
  return Value::MakeGenerator(std::move(pairs));
}

// Returns the argument `name`, which must be a positive size.
absl::StatusOr<int64_t> RowSize(const Call& call, absl::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> size, call.arguments.FindInt(0, name));
  if (size.value_or(0) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the argument '", name, "' must be at least 1"));
  }
  return *size;
}

Result Batch(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("batch", {"linecount", "fill_with"}));
  ASSIGN_OR_RETURN(const int64_t size, RowSize(call, "linecount"));
  const Value* fill = call.arguments.Find(1, "fill_with");
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  RETURN_IF_ERROR(call.budget.Texts(items.size()));
  Items rows;
  for (size_t at = 0; at < items.size();) {
    const size_t end = std::min(items.size(), at + static_cast<size_t>(size));
    Items row(items.begin() + static_cast<std::ptrdiff_t>(at),
              items.begin() + static_cast<std::ptrdiff_t>(end));
    if (fill != nullptr && !fill->IsNone()) {
      const auto missing = static_cast<size_t>(size) - row.size();
      RETURN_IF_ERROR(call.budget.Items(missing));
      row.insert(row.end(), missing, *fill);
    }
    rows.push_back(Value::MakeList(std::move(row)));
    at = end;
  }
  return Value::MakeGenerator(std::move(rows));
}

Result Slice(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("slice", {"slices", "fill_with"}));
  ASSIGN_OR_RETURN(const int64_t slices, RowSize(call, "slices"));
  const Value* fill = call.arguments.Find(1, "fill_with");
  ASSIGN_OR_RETURN(const Items items, SelfItems(call));
  RETURN_IF_ERROR(call.budget.Texts(static_cast<size_t>(slices)));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t longer = size % slices;  // number of slices that have one more item
  Items rows;
  auto at = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = at + size / slices + (i < longer ? 1 : 0);
    Items row(at, end);
    if (fill != nullptr && !fill->IsNone() && i >= longer) row.push_back(*fill);
    rows.push_back(Value::MakeList(std::move(row)));
    at = end;
  }
  return Value::MakeGenerator(std::move(rows));
}

constexpr NamedFunction kFilters[] = {
    {"length", LengthFilter}, {"count", LengthFilter}, {"first", First},
    {"last", Last},           {"reverse", Reverse},    {"list", ToList},
    {"batch", Batch},         {"slice", Slice},        {"items", ItemsFilter},
};

}  // namespace

absl::Span<const NamedFunction> SequenceFilters() { return kFilters; }

}  // namespace tidepool::engine::jinja
