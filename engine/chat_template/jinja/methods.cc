// The methods of each type. text_methods.cc has the methods of strings.
#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Get(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("get", {"", ""}));
  const Value* key = call.arguments.Find(0, "");
  if (key == nullptr) return absl::InvalidArgumentError("get needs a key");
  RETURN_IF_ERROR(call.budget.Visit(*key));
  if (!HashText(*key).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", TypeName(*key), " cannot be a dict's key"));
  }
  if (const Value* found = call.self.AsDict()->Find(*key)) return *found;
  const Value* fallback = call.arguments.Find(1, "");
  return fallback != nullptr ? *fallback : Value();
}

Result DictView(const Call& call, absl::string_view method, List::Kind kind) {
  RETURN_IF_ERROR(call.arguments.Check(method, {}));
  const Dict& dict = *call.self.AsDict();
  RETURN_IF_ERROR(call.budget.Texts(dict.size()));
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    items.push_back(kind == List::Kind::kKeys     ? key
                    : kind == List::Kind::kValues ? value
                                                  : Value::MakeTuple({key, value}));
  }
  return MakeSequence(std::move(items), kind);
}

Result Items(const Call& call) { return DictView(call, "items", List::Kind::kItems); }
Result Keys(const Call& call) { return DictView(call, "keys", List::Kind::kKeys); }
Result Values(const Call& call) { return DictView(call, "values", List::Kind::kValues); }

// Values are immutable, so the value itself can be used as its copy.
Result Copy(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("copy", {}));
  return call.self;
}

absl::StatusOr<Value> Needle(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("index and count", {"value"}));
  const Value* value = call.arguments.Find(0, "value");
  if (value == nullptr) return absl::InvalidArgumentError("index and count need a value");
  RETURN_IF_ERROR(call.budget.Visit(call.self));
  return *value;
}

Result Index(const Call& call) {
  ASSIGN_OR_RETURN(const Value value, Needle(call));
  const std::vector<Value>& items = call.self.AsList()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equals(items[i], value)) return Value::MakeInt(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("the value is not in the list");
}

Result Count(const Call& call) {
  ASSIGN_OR_RETURN(const Value value, Needle(call));
  const std::vector<Value>& items = call.self.AsList()->items;
  return Value::MakeInt(std::count_if(items.begin(), items.end(),
                                      [&value](const Value& item) { return Equals(item, value); }));
}

constexpr NamedFunction kDictMethods[] = {
    {"get", Get}, {"items", Items}, {"keys", Keys}, {"values", Values}, {"copy", Copy},
};
constexpr NamedFunction kListMethods[] = {{"index", Index}, {"count", Count}, {"copy", Copy}};

// Methods of Python that change a value. Jinja's sandbox forbids them.
constexpr absl::string_view kChanging[] = {"append",  "extend",     "insert", "remove", "sort",
                                           "reverse", "pop",        "clear",  "update", "popitem",
                                           "add",     "setdefault", "discard"};

// Methods of Python's strings that are not supported.
constexpr absl::string_view kUnsupported[] = {"casefold", "encode", "maketrans", "translate"};

absl::Span<const NamedFunction> MethodsOf(const Value& value) {
  if (value.AsText() != nullptr) return TextMethods();
  if (value.AsDict() != nullptr) return kDictMethods;
  const List* list = value.AsList();
  if (list == nullptr || !list->HasIndex()) return {};
  // Only lists have the last method, copy.
  const absl::Span<const NamedFunction> all = kListMethods;
  return list->kind == List::Kind::kList ? all : all.first(all.size() - 1);
}

}  // namespace

bool HasMethod(const Value& value, absl::string_view name) {
  return FindFunction(MethodsOf(value), name) != nullptr;
}

Result CallMethod(absl::string_view name, const Call& call) {
  if (const NamedFunction* method = FindFunction(MethodsOf(call.self), name)) {
    return method->apply(call);
  }
  const bool changing =
      std::find(std::begin(kChanging), std::end(kChanging), name) != std::end(kChanging);
  if (changing && (call.self.AsList() != nullptr || call.self.AsDict() != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("the method '", name, "' would modify a ",
                                                   TypeName(call.self),
                                                   "; create a new one, or use a namespace"));
  }
  if (call.self.IsUndefined()) return absl::InvalidArgumentError(*call.self.As<Undefined>()->what);
  const std::string what =
      absl::StrCat("the method '", name, "' of a value of type ", TypeName(call.self));
  const bool known =
      std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
  if (known && call.self.AsText() != nullptr) {
    return absl::UnimplementedError(absl::StrCat(what, " is not supported"));
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no ", what.substr(4)));
}

}  // namespace tidepool::engine::jinja
