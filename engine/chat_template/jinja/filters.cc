// The table of filters, and the filters for values of any type.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/json.h"
#include "engine/chat_template/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Default(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("default", {"default_value", "boolean"}));
  const Value* fallback = call.arguments.Find(0, "default_value");
  const bool falsy = call.arguments.FindFlag(1, "boolean") && !call.self.Truthy();
  if (!call.self.IsUndefined() && !falsy) return call.self;
  return fallback != nullptr ? *fallback : Value::MakeText(Text());
}

Result Attr(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("attr", {"name"}));
  ASSIGN_OR_RETURN(const std::optional<Text> name, call.arguments.FindText(0, "name"));
  if (!name.has_value()) return absl::InvalidArgumentError("attr needs an attribute's name");
  if (HasMethod(call.self, name->bytes())) {
    return Value(std::make_shared<const Callable>(
        Callable{Callable::Kind::kMethod, nullptr, nullptr, call.self, name->bytes()}));
  }
  // Unlike in `value.name`, the keys of a dict are not its attributes here.
  if (call.self.AsDict() == nullptr) return GetAttribute(call.self, name->bytes());
  return Value::MakeUndefined(absl::StrCat("a dict has no attribute '", name->bytes(), "'"));
}

// Returns the indent of json.dumps. The argument is a number of blanks, or a string.
absl::StatusOr<std::optional<std::string>> JsonIndent(const Value& indent) {
  if (indent.IsNone()) return std::optional<std::string>();
  if (indent.AsText() != nullptr) return std::optional<std::string>(indent.AsText()->bytes());
  constexpr int64_t kMaxIndent = 64;
  if (!IsInteger(indent) || ToInt64(indent) > kMaxIndent) {
    return absl::InvalidArgumentError(
        absl::StrCat("tojson's indent must be a string or a number of up to ", kMaxIndent));
  }
  const int64_t blanks = std::max<int64_t>(ToInt64(indent), 0);
  return std::optional<std::string>(std::string(static_cast<size_t>(blanks), ' '));
}

// The parameters have the order of transformers' filter, which replaces Jinja's filter.
Result ToJsonFilter(const Call& call) {
  RETURN_IF_ERROR(
      call.arguments.Check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = call.arguments.FindFlag(0, "ensure_ascii");
  if (const Value* indent = call.arguments.Find(1, "indent")) {
    ASSIGN_OR_RETURN(style.indent, JsonIndent(*indent));
  }
  if (const Value* separators = call.arguments.Find(2, "separators");
      separators != nullptr && !separators->IsNone()) {
    const List* pair = separators->AsList();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].AsText() == nullptr ||
        pair->items[1].AsText() == nullptr) {
      return absl::InvalidArgumentError("tojson's separators must be a pair of strings");
    }
    style.item_separator = pair->items[0].AsText()->bytes();
    style.key_separator = pair->items[1].AsText()->bytes();
  }
  style.sort_keys = call.arguments.FindFlag(3, "sort_keys");
  RETURN_IF_ERROR(call.budget.Visit(call.self));
  ASSIGN_OR_RETURN(Text text, ToJson(call.self, style, &call.budget));
  return Value::MakeText(std::move(text));
}

Result Random(const Call& /*call*/) {
  return absl::UnimplementedError(
      "the filter 'random' is not supported, because equal messages must give equal prompts");
}

constexpr NamedFunction kFilters[] = {
    {"default", Default},     {"d", Default},     {"attr", Attr},
    {"tojson", ToJsonFilter}, {"random", Random},
};

using Table = absl::flat_hash_map<absl::string_view, const NamedFunction*>;

const Table& Filters() {
  static const Table* const table = [] {
    auto* made = new Table();
    for (const auto& functions : {absl::MakeConstSpan(kFilters), TextFilters(), NumberFilters(),
                                  SequenceFilters(), SelectionFilters()}) {
      for (const NamedFunction& function : functions) made->emplace(function.name, &function);
    }
    return made;
  }();
  return *table;
}

}  // namespace

bool HasFilter(absl::string_view name) { return Filters().contains(name); }

Result ApplyFilter(absl::string_view name, const Call& call) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) {
    return absl::UnimplementedError(absl::StrCat("the filter '", name, "' is not supported"));
  }
  return found->second->apply(call);
}

}  // namespace tidepool::engine::jinja
