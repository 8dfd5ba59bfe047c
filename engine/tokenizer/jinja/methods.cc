// Methods of strings, dicts and lists.
#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/functions.h"
#include "engine/tokenizer/jinja/strings.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr std::array<absl::string_view, 24> kTextMethods = {
    "strip",   "lstrip",  "rstrip",     "split",   "rsplit",       "splitlines",
    "upper",   "lower",   "capitalize", "title",   "startswith",   "endswith",
    "replace", "find",    "rfind",      "count",   "removeprefix", "removesuffix",
    "join",    "isdigit", "isalpha",    "isalnum", "isspace",      "format",
};
constexpr std::array<absl::string_view, 4> kDictMethods = {"items", "keys", "values", "get"};
constexpr std::array<absl::string_view, 2> kListMethods = {"index", "count"};

template <size_t kSize>
bool IsOneOf(const std::array<absl::string_view, kSize>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value TextList(std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(Value::MakeText(std::move(text)));
  return Value::MakeList(std::move(items));
}

Result StripMethod(const Text& text, Side side, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("strip", {"chars"}));
  ASSIGN_OR_RETURN(const std::optional<Text> characters, call.arguments.FindText(0, "chars"));
  return Value::MakeText(Strip(text, side, characters));
}

Result SplitMethod(const Text& text, Side from, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("split", {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const std::optional<Text> separator, call.arguments.FindText(0, "sep"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(1, "maxsplit"));
  const int64_t limit = given.value_or(-1);
  if (separator.has_value()) {
    if (separator->empty()) return absl::InvalidArgumentError("split needs a separator, not ''");
    std::vector<Text> parts = Split(text, separator->bytes(), limit, from);
    RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(parts.size())));
    return TextList(std::move(parts));
  }
  if (from == Side::kRight && limit >= 0) {
    return absl::UnimplementedError("rsplit at blanks with a limit is not supported");
  }
  std::vector<Text> parts = SplitBlanks(text, limit);
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(parts.size())));
  return TextList(std::move(parts));
}

// startswith, endswith: a string or a tuple of them.
Result HasEnd(const Text& text, bool at_start, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check(at_start ? "startswith" : "endswith", {"prefix"}));
  const Value* argument = call.arguments.Find(0, "prefix");
  std::vector<Value> candidates;
  if (argument != nullptr && argument->AsList() != nullptr) candidates = argument->AsList()->items;
  if (argument != nullptr && argument->AsText() != nullptr) candidates.push_back(*argument);
  if (argument == nullptr || (candidates.empty() && argument->AsList() == nullptr)) {
    return absl::InvalidArgumentError("startswith and endswith need a string");
  }
  for (const Value& candidate : candidates) {
    if (candidate.AsText() == nullptr) {
      return absl::InvalidArgumentError("startswith and endswith need strings");
    }
    const std::string& end = candidate.AsText()->bytes();
    const bool has =
        at_start ? absl::StartsWith(text.bytes(), end) : absl::EndsWith(text.bytes(), end);
    if (has) return Value::MakeBool(true);
  }
  return Value::MakeBool(false);
}

// The one string that a method cannot do without.
absl::StatusOr<Text> RequiredText(absl::string_view method, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check(method, {"sub"}));
  ASSIGN_OR_RETURN(std::optional<Text> text, call.arguments.FindText(0, "sub"));
  if (!text.has_value()) return absl::InvalidArgumentError(absl::StrCat(method, " needs a string"));
  return *std::move(text);
}

Result Find(const Text& text, bool from_right, const Call& call) {
  ASSIGN_OR_RETURN(const Text needle, RequiredText(from_right ? "rfind" : "find", call));
  const absl::string_view bytes = text.bytes();
  const size_t at = from_right ? bytes.rfind(needle.bytes()) : bytes.find(needle.bytes());
  if (at == absl::string_view::npos) return Value::MakeInt(-1);
  return Value::MakeInt(static_cast<int64_t>(CharacterOffsets(bytes.substr(0, at)).size()) - 1);
}

Result Count(const Text& text, const Call& call) {
  ASSIGN_OR_RETURN(const Text needle, RequiredText("count", call));
  if (needle.empty()) {
    return Value::MakeInt(static_cast<int64_t>(CharacterOffsets(text.bytes()).size()));
  }
  int64_t count = 0;
  for (size_t at = text.bytes().find(needle.bytes()); at != std::string::npos;
       at = text.bytes().find(needle.bytes(), at + needle.size())) {
    ++count;
  }
  return Value::MakeInt(count);
}

Result RemoveEnd(const Text& text, bool at_start, const Call& call) {
  ASSIGN_OR_RETURN(const Text end, RequiredText(at_start ? "removeprefix" : "removesuffix", call));
  const size_t cut = end.size();
  if (at_start && absl::StartsWith(text.bytes(), end.bytes())) {
    return Value::MakeText(text.Slice(cut, text.size()));
  }
  if (!at_start && absl::EndsWith(text.bytes(), end.bytes())) {
    return Value::MakeText(text.Slice(0, text.size() - cut));
  }
  return call.self;
}

// isdigit and its like. Only isspace looks past ASCII, where the others say no.
Result IsAll(const Text& text, absl::string_view name, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check(name, {}));
  bool all = !text.empty();
  absl::string_view rest = text.bytes();
  while (all && !rest.empty()) {
    const Utf8Char next = NextUtf8Char(rest);
    const auto ascii = static_cast<unsigned char>(next.code_point < 0x80 ? next.code_point : 0);
    all = name == "isspace"   ? IsBlank(next.code_point)
          : name == "isdigit" ? absl::ascii_isdigit(ascii)
          : name == "isalpha" ? absl::ascii_isalpha(ascii)
                              : absl::ascii_isalnum(ascii);
    rest.remove_prefix(next.size);
  }
  return Value::MakeBool(all);
}

Result SplitLinesMethod(const Text& text, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("splitlines", {"keepends"}));
  const Value* keep_ends = call.arguments.Find(0, "keepends");
  std::vector<Text> lines = SplitLines(text, keep_ends != nullptr && keep_ends->Truthy());
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(lines.size())));
  return TextList(std::move(lines));
}

// The separator is the object, the items the argument: join's filter the other way around.
Result JoinMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("join", {"items"}));
  const Value* items = call.arguments.Find(0, "items");
  if (items == nullptr) return absl::InvalidArgumentError("join needs a sequence");
  const Arguments glue = {{call.self}, {}};
  return ApplyFilter("join", {*items, glue, call.budget});
}

Result CallTextMethod(const Text& text, absl::string_view name, const Call& call) {
  RETURN_IF_ERROR(call.budget.Copy(text.size()));
  if (name == "strip") return StripMethod(text, Side::kBoth, call);
  if (name == "lstrip") return StripMethod(text, Side::kLeft, call);
  if (name == "rstrip") return StripMethod(text, Side::kRight, call);
  if (name == "split") return SplitMethod(text, Side::kLeft, call);
  if (name == "rsplit") return SplitMethod(text, Side::kRight, call);
  if (name == "splitlines") return SplitLinesMethod(text, call);
  if (name == "startswith") return HasEnd(text, /*at_start=*/true, call);
  if (name == "endswith") return HasEnd(text, /*at_start=*/false, call);
  if (name == "find") return Find(text, /*from_right=*/false, call);
  if (name == "rfind") return Find(text, /*from_right=*/true, call);
  if (name == "count") return Count(text, call);
  if (name == "removeprefix") return RemoveEnd(text, /*at_start=*/true, call);
  if (name == "removesuffix") return RemoveEnd(text, /*at_start=*/false, call);
  if (name == "join") return JoinMethod(call);
  if (absl::StartsWith(name, "is")) return IsAll(text, name, call);
  if (name == "format") return absl::UnimplementedError("the method 'format' is not supported");
  // What is left is a filter of the same name and arguments.
  return ApplyFilter(name, call);
}

Result CallDictMethod(const Dict& dict, absl::string_view name, const Call& call) {
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(dict.size())));
  if (name == "get") {
    RETURN_IF_ERROR(call.arguments.Check("get", {"key", "default"}));
    const Value* key = call.arguments.Find(0, "key");
    if (key == nullptr) return absl::InvalidArgumentError("get needs a key");
    const Value* found = key->AsText() == nullptr ? nullptr : dict.Find(key->AsText()->bytes());
    if (found != nullptr) return *found;
    const Value* fallback = call.arguments.Find(1, "default");
    return fallback != nullptr ? *fallback : Value();
  }
  RETURN_IF_ERROR(call.arguments.Check(name, {}));
  if (name == "items") return ApplyFilter("items", call);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    items.push_back(name == "keys" ? Value::MakeText(key) : value);
  }
  return Value::MakeList(std::move(items));
}

Result CallListMethod(const List& list, absl::string_view name, const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check(name, {"value"}));
  const Value* value = call.arguments.Find(0, "value");
  if (value == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(list.items.size())));
  const auto same = [value](const Value& item) { return Equals(item, *value); };
  if (name == "count") {
    return Value::MakeInt(std::count_if(list.items.begin(), list.items.end(), same));
  }
  const auto found = std::find_if(list.items.begin(), list.items.end(), same);
  if (found == list.items.end()) return absl::InvalidArgumentError("the value is not in the list");
  return Value::MakeInt(found - list.items.begin());
}

}  // namespace

bool HasMethod(const Value& value, absl::string_view name) {
  if (value.AsText() != nullptr) return IsOneOf(kTextMethods, name);
  if (value.AsDict() != nullptr) return IsOneOf(kDictMethods, name);
  if (value.AsList() != nullptr) return IsOneOf(kListMethods, name);
  return false;
}

Result CallMethod(absl::string_view name, const Call& call) {
  if (HasMethod(call.self, name)) {
    if (const Text* text = call.self.AsText()) return CallTextMethod(*text, name, call);
    if (const Dict* dict = call.self.AsDict()) return CallDictMethod(*dict, name, call);
    if (const List* list = call.self.AsList()) return CallListMethod(*list, name, call);
  }
  return absl::UnimplementedError(absl::StrCat("the method '", name, "' of a value of type ",
                                               TypeName(call.self), " is not supported"));
}

}  // namespace tidepool::engine::jinja
