// The arguments of filters and methods, and the limits of a rendering.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {

absl::Status Budget::Step(int64_t steps) {
  left_.steps = steps > left_.steps ? -1 : left_.steps - steps;
  if (left_.steps >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the template exceeds the limit of ", limits_.steps, " steps"));
}

absl::Status Budget::Copy(size_t bytes) {
  if (bytes <= static_cast<size_t>(std::max<int64_t>(left_.made_bytes, 0))) {
    left_.made_bytes -= static_cast<int64_t>(bytes);
    return absl::OkStatus();
  }
  left_.made_bytes = -1;
  return absl::ResourceExhaustedError(absl::StrCat("the template exceeds the limit of ",
                                                   limits_.made_bytes,
                                                   " bytes of values created and searched"));
}

absl::Status Budget::Characters(size_t bytes) {
  // Classifying a character takes about as long as copying this number of bytes.
  constexpr size_t kCopiesPerByte = 12;
  return Copy(kCopiesPerByte * bytes);
}

absl::Status Budget::CheckText(size_t bytes) const {
  if (bytes > static_cast<size_t>(limits_.text_bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a string of ", bytes, " bytes exceeds the limit of ", limits_.text_bytes));
  }
  return absl::OkStatus();
}

absl::Status Budget::Grow(size_t bytes) {
  RETURN_IF_ERROR(CheckText(bytes));
  return Copy(bytes);
}

absl::Status Budget::Items(size_t items) {
  RETURN_IF_ERROR(Step(static_cast<int64_t>(items)));
  return Copy(items * sizeof(Value));
}

absl::Status Budget::Texts(size_t items) {
  constexpr size_t kTextBytes = 128;  // memory for a short string and its origins
  RETURN_IF_ERROR(Step(static_cast<int64_t>(items)));
  return Copy(items * kTextBytes);
}

absl::Status Budget::Visit(const Value& value) {
  if (const Text* text = value.AsText()) return Copy(text->size());
  // Comparing or printing one item takes less time than a step.
  constexpr int64_t kItemsPerStep = 16;
  const int64_t weight = value.extent().weight;
  RETURN_IF_ERROR(Step(weight / kItemsPerStep));
  return Copy(static_cast<size_t>(weight));
}

absl::Status Budget::Write(const Value& value) {
  RETURN_IF_ERROR(Visit(value));
  constexpr int64_t kItemsPerStep = 4;
  return value.AsText() != nullptr ? absl::OkStatus() : Step(value.extent().weight / kItemsPerStep);
}

absl::Status Budget::Index(const Value& value) {
  return value.AsText() != nullptr ? Characters(value.AsText()->size()) : absl::OkStatus();
}

absl::Status Arguments::Check(absl::string_view function,
                              std::initializer_list<absl::string_view> parameters) const {
  if (positional.size() > parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat(function, " takes at most ", parameters.size(),
                                                   " arguments, not ", positional.size()));
  }
  for (const auto& [name, unused] : named) {
    if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) {
      return absl::InvalidArgumentError(absl::StrCat(function, " has no argument '", name, "'"));
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

bool Arguments::FindFlag(size_t place, absl::string_view name) const {
  const Value* value = Find(place, name);
  return value != nullptr && value->Truthy();
}

namespace {

// Returns nullopt if there is no such attribute.
std::optional<Value> LoopAttribute(const LoopState& loop, absl::string_view name) {
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::MakeInt(index + 1);
  if (name == "index0") return Value::MakeInt(index);
  if (name == "revindex") return Value::MakeInt(size - index);
  if (name == "revindex0") return Value::MakeInt(size - index - 1);
  if (name == "first") return Value::MakeBool(index == 0);
  if (name == "last") return Value::MakeBool(index + 1 >= size);
  if (name == "length") return Value::MakeInt(size);
  if (name == "depth") return Value::MakeInt(static_cast<int64_t>(loop.depth));
  if (name == "depth0") return Value::MakeInt(static_cast<int64_t>(loop.depth) - 1);
  if (name == "previtem" && index > 0) return loop.items[loop.index - 1];
  if (name == "nextitem" && index + 1 < size) return loop.items[loop.index + 1];
  return std::nullopt;
}

}  // namespace

Value GetAttribute(const Value& value, absl::string_view name) {
  const Value* found = nullptr;
  if (const Dict* dict = value.AsDict()) found = dict->Find(name);
  if (const Namespace* fields = value.AsNamespace()) found = fields->fields.Find(name);
  if (found != nullptr) return *found;
  if (const LoopState* loop = value.AsLoop()) {
    if (std::optional<Value> attribute = LoopAttribute(*loop, name)) return *std::move(attribute);
  }
  if (const List* list = value.AsList(); list != nullptr && list->kind == List::Kind::kGroup) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  if (const Carousel* carousel = value.AsCarousel();
      carousel != nullptr && !carousel->is_joiner && name == "current") {
    return carousel->items[carousel->index];
  }
  if (const Callable* callable = value.AsCallable();
      callable != nullptr && callable->kind == Callable::Kind::kMacro && name == "name") {
    return Value::MakeText(callable->name, TextOrigin::kTemplate);
  }
  return Value::MakeUndefined(
      absl::StrCat("a value of type ", TypeName(value), " has no attribute '", name, "'"));
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (const Dict* dict = value.AsDict(); dict != nullptr && key.AsText() == nullptr) {
    if (const Value* found = dict->Find(key)) return *found;
  }
  if (key.AsText() != nullptr) return GetAttribute(value, key.AsText()->bytes());
  const List* list = value.AsList();
  const bool is_sequence = value.AsText() != nullptr || (list != nullptr && list->HasIndex());
  if (!is_sequence || !IsInteger(key)) {
    return Value::MakeUndefined(absl::StrCat("a value of type ", TypeName(value),
                                             " has no item whose key is of type ", TypeName(key)));
  }
  ASSIGN_OR_RETURN(const int64_t size, Length(value));
  int64_t index = ToInt64(key);
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return Value::MakeUndefined(
        absl::StrCat("a ", TypeName(value), " of ", size, " items has no item ", ToInt64(key)));
  }
  if (list != nullptr) return list->items[static_cast<size_t>(index)];
  return Value::MakeText(SliceText(*value.AsText(), {index, index + 1, 1}));
}

const NamedFunction* FindFunction(absl::Span<const NamedFunction> table, absl::string_view name) {
  for (const NamedFunction& function : table) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Value>> SelfItems(const Call& call) {
  if (const Text* text = call.self.AsText()) {
    RETURN_IF_ERROR(call.budget.Texts(text->size()));
  } else {
    const List* list = call.self.AsList();
    const Dict* dict = call.self.AsDict();
    RETURN_IF_ERROR(call.budget.Items(list != nullptr   ? list->items.size()
                                      : dict != nullptr ? dict->size()
                                                        : 0));
  }
  return Iterate(call.self);
}

absl::StatusOr<Text> SelfText(const Call& call) {
  RETURN_IF_ERROR(call.budget.Write(call.self));
  Text text = ToText(call.self);
  RETURN_IF_ERROR(call.budget.Grow(text.size()));
  return text;
}

Value TextList(std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(Value::MakeText(std::move(text)));
  return Value::MakeList(std::move(items));
}

}  // namespace tidepool::engine::jinja
