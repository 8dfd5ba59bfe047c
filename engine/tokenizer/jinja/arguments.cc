#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/functions.h"
#include "engine/tokenizer/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {

absl::Status Budget::Step(int64_t steps) {
  steps_ -= steps;
  if (steps_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError("the template takes too many steps for these messages");
}

absl::Status Budget::Copy(size_t bytes) {
  if (bytes <= static_cast<size_t>(std::max<int64_t>(copied_bytes_, 0))) {
    copied_bytes_ -= static_cast<int64_t>(bytes);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("the template makes too much text of these messages");
}

absl::Status Budget::Visit(const Value& value) {
  if (const Text* text = value.AsText()) return Copy(text->size());
  if (const List* list = value.AsList()) return Step(static_cast<int64_t>(list->items.size()));
  return absl::OkStatus();
}

absl::Status Arguments::Check(absl::string_view function,
                              std::initializer_list<absl::string_view> parameters) const {
  if (positional.size() > parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat(function, " takes at most ", parameters.size(),
                                                   " arguments, not ", positional.size()));
  }
  for (const auto& [name, unused] : named) {
    if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) {
      return absl::UnimplementedError(
          absl::StrCat(function, " has no argument '", name, "' that is supported"));
    }
  }
  return absl::OkStatus();
}

const Value* Arguments::Find(size_t place, absl::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<std::optional<Text>> Arguments::FindText(size_t place,
                                                        absl::string_view name) const {
  const Value* value = Find(place, name);
  if (value == nullptr || value->IsNone()) return std::optional<Text>();
  if (value->AsText() != nullptr) return std::optional<Text>(*value->AsText());
  return absl::InvalidArgumentError(
      absl::StrCat("the argument '", name, "' is of type ", TypeName(*value), ", not a string"));
}

absl::StatusOr<std::optional<int64_t>> Arguments::FindInt(size_t place,
                                                          absl::string_view name) const {
  const Value* value = Find(place, name);
  if (value == nullptr || value->IsNone()) return std::optional<int64_t>();
  if (IsInteger(*value)) return std::optional<int64_t>(ToInt64(*value));
  return absl::InvalidArgumentError(
      absl::StrCat("the argument '", name, "' is of type ", TypeName(*value), ", not an integer"));
}

Value GetAttribute(const Value& value, absl::string_view name) {
  const Value* found = nullptr;
  if (const Dict* dict = value.AsDict()) found = dict->Find(name);
  if (const Namespace* fields = value.AsNamespace()) found = fields->fields.Find(name);
  if (found != nullptr) return *found;
  if (const LoopState* loop = value.AsLoop()) {
    const auto size = static_cast<int64_t>(loop->items.size());
    const auto index = static_cast<int64_t>(loop->index);
    if (name == "index") return Value::MakeInt(index + 1);
    if (name == "index0") return Value::MakeInt(index);
    if (name == "revindex") return Value::MakeInt(size - index);
    if (name == "revindex0") return Value::MakeInt(size - index - 1);
    if (name == "first") return Value::MakeBool(index == 0);
    if (name == "last") return Value::MakeBool(index + 1 == size);
    if (name == "length") return Value::MakeInt(size);
    if (name == "depth") return Value::MakeInt(static_cast<int64_t>(loop->depth));
    if (name == "depth0") return Value::MakeInt(static_cast<int64_t>(loop->depth) - 1);
    if (name == "previtem" && index > 0) return loop->items[loop->index - 1];
    if (name == "nextitem" && index + 1 < size) return loop->items[loop->index + 1];
  }
  return Value::MakeUndefined(
      absl::StrCat("a value of type ", TypeName(value), " has no attribute '", name, "'"));
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (key.AsText() != nullptr) return GetAttribute(value, key.AsText()->bytes());
  const bool is_sequence = value.AsList() != nullptr || value.AsText() != nullptr;
  if (!is_sequence || !IsInteger(key)) {
    return Value::MakeUndefined(
        absl::StrCat("a value of type ", TypeName(value), " has no item ", ToText(key).bytes()));
  }
  ASSIGN_OR_RETURN(const int64_t size, Length(value));
  int64_t index = ToInt64(key);
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return Value::MakeUndefined(absl::StrCat("a ", TypeName(value), " of ", size,
                                             " items has no item ", ToText(key).bytes()));
  }
  if (const List* list = value.AsList()) return list->items[static_cast<size_t>(index)];
  return Value::MakeText(SliceText(*value.AsText(), {index, index + 1, 1}));
}

}  // namespace tidepool::engine::jinja
