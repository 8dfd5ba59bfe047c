// Methods of strings.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/strings.h"
#include "engine/chat_template/jinja/unicode.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Returns the string whose method is called, and subtracts its size from the budget.
absl::StatusOr<Text> Self(const Call& call) {
  RETURN_IF_ERROR(call.budget.Copy(call.self.AsText()->size()));
  return *call.self.AsText();
}

// Returns the required string argument of a method.
absl::StatusOr<Text> Required(const Call& call, absl::string_view method) {
  ASSIGN_OR_RETURN(std::optional<Text> text, call.arguments.FindText(0, ""));
  if (!text.has_value()) return absl::InvalidArgumentError(absl::StrCat(method, " needs a string"));
  return *std::move(text);
}

template <Side kSide>
Result StripMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("strip", {"chars"}));
  ASSIGN_OR_RETURN(const std::optional<Text> characters, call.arguments.FindText(0, "chars"));
  if (characters.has_value()) {
    // The search has a cost in the budget, because each character of the text may be compared with
    // all of `characters`.
    RETURN_IF_ERROR(call.budget.Copy(characters->size() * call.self.AsText()->size()));
  }
  ASSIGN_OR_RETURN(const Text text, Self(call));
  return Value::MakeText(Strip(text, kSide, characters));
}

template <Side kFrom>
Result SplitMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("split", {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const std::optional<Text> separator, call.arguments.FindText(0, "sep"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(1, "maxsplit"));
  const int64_t limit = given.value_or(-1);
  ASSIGN_OR_RETURN(const Text text, Self(call));
  if (separator.has_value() && separator->empty()) {
    return absl::InvalidArgumentError("split's separator must not be empty");
  }
  ASSIGN_OR_RETURN(std::vector<Text> parts,
                   separator.has_value()
                       ? Split(text, separator->bytes(), {limit, kFrom}, &call.budget)
                   : kFrom == Side::kRight ? SplitBlanksFromRight(text, limit, &call.budget)
                                           : SplitBlanks(text, limit, &call.budget));
  return TextList(std::move(parts));
}

Result SplitLinesMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("splitlines", {"keepends"}));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  const bool keeps = call.arguments.FindFlag(0, "keepends");
  ASSIGN_OR_RETURN(std::vector<Text> lines,
                   SplitLines(text, keeps ? LineEnds::kKeep : LineEnds::kDrop, &call.budget));
  return TextList(std::move(lines));
}

template <bool kFromRight>
Result Partition(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("partition", {"sep"}));
  ASSIGN_OR_RETURN(const Text separator, Required(call, "partition"));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  if (separator.empty())
    return absl::InvalidArgumentError("partition's separator must not be empty");
  const size_t at = kFromRight ? FindLastText(text.bytes(), separator.bytes())
                               : FindText(text.bytes(), separator.bytes());
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = {Value::MakeText(Text()), Value::MakeText(Text()), call.self};
    if (!kFromRight) std::swap(parts[0], parts[2]);
  } else {
    const size_t end = at + separator.size();
    parts = {Value::MakeText(text.Slice(0, at)), Value::MakeText(text.Slice(at, end)),
             Value::MakeText(text.Slice(end, text.size()))};
  }
  return Value::MakeTuple(std::move(parts));
}

// The part of a text that a method with the arguments `start` and `end` searches.
struct Window {
  Text text;
  int64_t begin = 0;      // position in the whole text, in characters
  bool is_empty = false;  // the part is after the end, where even '' is not found
};

absl::StatusOr<Window> FindWindow(const Call& call) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> start, call.arguments.FindInt(1, "start"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> end, call.arguments.FindInt(2, "end"));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  if (!start.has_value() && !end.has_value()) return Window{text};
  RETURN_IF_ERROR(call.budget.Copy(sizeof(size_t) * text.size()));
  const auto size = static_cast<int64_t>(CharacterOffsets(text.bytes()).size()) - 1;
  const auto place = [size](int64_t index) {
    return index < 0 ? std::max<int64_t>(index + size, 0) : index;
  };
  Window window = {SliceText(text, {start, end, 1}), place(start.value_or(0)), false};
  window.is_empty = window.begin > size || place(end.value_or(size)) < window.begin;
  return window;
}

// Implements startswith and endswith. The argument is a string or a tuple of strings.
template <bool kAtStart>
Result HasEnd(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("startswith and endswith", {"prefix", "start", "end"}));
  const Value* argument = call.arguments.Find(0, "prefix");
  std::vector<Value> candidates;
  if (argument != nullptr && argument->AsList() != nullptr && argument->AsList()->IsTuple()) {
    candidates = argument->AsList()->items;
  } else if (argument != nullptr) {
    candidates.push_back(*argument);
  }
  ASSIGN_OR_RETURN(const Window window, FindWindow(call));
  bool has = false;
  for (const Value& candidate : candidates) {
    if (candidate.AsText() == nullptr) {
      return absl::InvalidArgumentError("startswith and endswith need a string or a tuple of them");
    }
    const std::string& end = candidate.AsText()->bytes();
    RETURN_IF_ERROR(call.budget.Copy(end.size()));
    has = has || (!window.is_empty && (kAtStart ? absl::StartsWith(window.text.bytes(), end)
                                                : absl::EndsWith(window.text.bytes(), end)));
  }
  if (argument == nullptr) return absl::InvalidArgumentError("startswith needs a string");
  return Value::MakeBool(has);
}

template <bool kFromRight, bool kMustBe>
Result Find(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("find", {"sub", "start", "end"}));
  ASSIGN_OR_RETURN(const Text needle, Required(call, "find"));
  ASSIGN_OR_RETURN(const Window window, FindWindow(call));
  const absl::string_view bytes = window.text.bytes();
  size_t at = kFromRight ? FindLastText(bytes, needle.bytes()) : FindText(bytes, needle.bytes());
  if (window.is_empty) at = absl::string_view::npos;
  if (at != absl::string_view::npos) {
    ASSIGN_OR_RETURN(const int64_t before, Length(Value::MakeText(window.text.Slice(0, at))));
    return Value::MakeInt(window.begin + before);
  }
  if (kMustBe) return absl::InvalidArgumentError("the substring is not found");
  return Value::MakeInt(-1);
}

Result Count(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("count", {"sub", "start", "end"}));
  ASSIGN_OR_RETURN(const Text needle, Required(call, "count"));
  ASSIGN_OR_RETURN(const Window window, FindWindow(call));
  if (window.is_empty) return Value::MakeInt(0);
  const std::string& bytes = window.text.bytes();
  if (needle.empty()) {
    ASSIGN_OR_RETURN(const int64_t size, Length(Value::MakeText(window.text)));
    return Value::MakeInt(size + 1);
  }
  int64_t count = 0;
  for (size_t at = FindText(bytes, needle.bytes()); at != std::string::npos;
       at = FindText(bytes, needle.bytes(), at + needle.size())) {
    ++count;
  }
  return Value::MakeInt(count);
}

template <bool kAtStart>
Result RemoveEnd(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("removeprefix and removesuffix", {""}));
  ASSIGN_OR_RETURN(const Text end, Required(call, "removeprefix"));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  if (kAtStart && absl::StartsWith(text.bytes(), end.bytes())) {
    return Value::MakeText(text.Slice(end.size(), text.size()));
  }
  if (!kAtStart && absl::EndsWith(text.bytes(), end.bytes())) {
    return Value::MakeText(text.Slice(0, text.size() - end.size()));
  }
  return call.self;
}

template <LetterCase kCase>
Result CaseMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("a method of case", {}));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  return Value::MakeText(ChangeCase(text, kCase));
}

// Returns whether every character is of one kind. kEmpty is the result for the empty string.
template <bool (*kIs)(char32_t), bool kEmpty>
Result IsAll(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("a method of the kind 'is'", {}));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  bool all = kEmpty || !text.empty();
  for (absl::string_view rest = text.bytes(); all && !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    all = kIs(next.code_point);
    rest.remove_prefix(next.size);
  }
  return Value::MakeBool(all);
}

bool IsAscii(char32_t c) { return c < 0x80; }
bool IsDigitCharacter(char32_t c) { return IsDigit(c); }
bool IsAlnumCharacter(char32_t c) { return IsAlnum(c); }

template <bool kUpper>
Result IsCase(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("isupper and islower", {}));
  ASSIGN_OR_RETURN(const bool is, ApplyTest(kUpper ? "upper" : "lower", call));
  return Value::MakeBool(is);
}

Result IsTitleMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("istitle", {}));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  bool any = false;
  bool in_word = false;
  for (absl::string_view rest = text.bytes(); !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    const char32_t c = next.code_point;
    const bool begins = IsUpper(c) || IsTitle(c);
    if ((begins && in_word) || (IsLower(c) && !in_word)) return Value::MakeBool(false);
    in_word = IsCased(c);
    any = any || in_word;
    rest.remove_prefix(next.size);
  }
  return Value::MakeBool(any);
}

Result IsIdentifier(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("isidentifier", {}));
  ASSIGN_OR_RETURN(const Text text, Self(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  bool all = !text.empty();
  bool first = true;
  for (absl::string_view rest = text.bytes(); all && !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    all = IsAlpha(next.code_point) || next.code_point == '_' ||
          (!first && IsDecimal(next.code_point));
    first = false;
    rest.remove_prefix(next.size);
  }
  return Value::MakeBool(all);
}

template <Side kSide>
Result Pad(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("ljust, rjust and center", {"width", "fillchar"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> width, call.arguments.FindInt(0, "width"));
  ASSIGN_OR_RETURN(const std::optional<Text> fill, call.arguments.FindText(1, "fillchar"));
  const Text filler = fill.value_or(Text(" ", TextOrigin::kTemplate));
  ASSIGN_OR_RETURN(const int64_t size, Length(Value::MakeText(filler)));
  if (!width.has_value() || size != 1) {
    return absl::InvalidArgumentError("ljust, rjust and center need a width and one character");
  }
  ASSIGN_OR_RETURN(const Text text, Self(call));
  return PadText(text, *width, kSide, filler, &call.budget);
}

Result ZeroFill(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("zfill", {"width"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> width, call.arguments.FindInt(0, "width"));
  if (!width.has_value()) return absl::InvalidArgumentError("zfill needs a width");
  ASSIGN_OR_RETURN(const Text text, Self(call));
  const bool has_sign = absl::StartsWith(text.bytes(), "-") || absl::StartsWith(text.bytes(), "+");
  const size_t sign = has_sign ? 1 : 0;
  ASSIGN_OR_RETURN(const Value padded,
                   PadText(text.Slice(sign, text.size()),
                           std::max<int64_t>(*width, 0) - static_cast<int64_t>(sign), Side::kLeft,
                           Text("0", TextOrigin::kTemplate), &call.budget));
  Text result = text.Slice(0, sign);
  result.Append(*padded.AsText());
  return Value::MakeText(std::move(result));
}

Result ExpandTabs(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("expandtabs", {"tabsize"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(0, "tabsize"));
  constexpr int64_t kTab = 8;
  const int64_t tab = given.value_or(kTab);
  ASSIGN_OR_RETURN(const Text text, Self(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  if (tab > 0) {
    const auto tabs = std::count(text.bytes().begin(), text.bytes().end(), '\t');
    RETURN_IF_ERROR(call.budget.Grow(static_cast<size_t>(tab)));
    RETURN_IF_ERROR(call.budget.Grow(text.size() + static_cast<size_t>(tabs * tab)));
  }
  int64_t column = 0;
  return Value::MakeText(MapCharacters(text, [&column, tab](char32_t c, std::string* out) {
    if (c == '\t') {
      const int64_t blanks = tab > 0 ? tab - column % tab : 0;
      out->append(static_cast<size_t>(blanks), ' ');
      column += blanks;
      return;
    }
    base::AppendUtf8(c, out);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }));
}

Result ReplaceMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("replace", {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const std::optional<Text> from, call.arguments.FindText(0, "old"));
  ASSIGN_OR_RETURN(const std::optional<Text> to, call.arguments.FindText(1, "new"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, call.arguments.FindInt(2, "count"));
  if (!from.has_value() || !to.has_value()) {
    return absl::InvalidArgumentError("replace needs the old and the new string");
  }
  ASSIGN_OR_RETURN(const Text text, Self(call));
  return ReplaceText(text, *from, *to, count.value_or(-1), &call.budget);
}

// Implements str.join. Unlike the filter, it is a method of the separator, and accepts only
// strings.
Result JoinMethod(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("join", {"items"}));
  const Value* sequence = call.arguments.Find(0, "items");
  if (sequence == nullptr) return absl::InvalidArgumentError("join needs a sequence");
  const Arguments none;
  ASSIGN_OR_RETURN(std::vector<Value> items, SelfItems({*sequence, none, call.budget}));
  for (const Value& item : items) {
    if (item.AsText() != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("join needs strings, not a value of type ", TypeName(item)));
  }
  const Arguments glue = {{call.self}, {}};
  return ApplyFilter("join", {Value::MakeList(std::move(items)), glue, call.budget});
}

Result FormatMethod(const Call& call) {
  return FormatBraces(*call.self.AsText(), call.arguments, &call.budget);
}

Result FormatMap(const Call& call) {
  const Value* values = call.arguments.Find(0, "");
  if (values == nullptr || values->AsDict() == nullptr) {
    return absl::InvalidArgumentError("format_map needs a dict");
  }
  Arguments named;
  for (const auto& [key, value] : values->AsDict()->entries()) {
    if (key.AsText() != nullptr) named.named.emplace_back(key.AsText()->bytes(), value);
  }
  RETURN_IF_ERROR(call.budget.Texts(named.named.size()));
  return FormatBraces(*call.self.AsText(), named, &call.budget);
}

constexpr NamedFunction kMethods[] = {
    {"strip", StripMethod<Side::kBoth>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<Side::kLeft>},
    {"rsplit", SplitMethod<Side::kRight>},
    {"splitlines", SplitLinesMethod},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"startswith", HasEnd<true>},
    {"endswith", HasEnd<false>},
    {"find", Find<false, false>},
    {"rfind", Find<true, false>},
    {"index", Find<false, true>},
    {"rindex", Find<true, true>},
    {"count", Count},
    {"removeprefix", RemoveEnd<true>},
    {"removesuffix", RemoveEnd<false>},
    {"upper", CaseMethod<LetterCase::kUpper>},
    {"lower", CaseMethod<LetterCase::kLower>},
    {"capitalize", CaseMethod<LetterCase::kCapitalize>},
    {"title", CaseMethod<LetterCase::kTitle>},
    {"swapcase", CaseMethod<LetterCase::kSwap>},
    {"isalpha", IsAll<IsAlpha, false>},
    {"isdecimal", IsAll<IsDecimal, false>},
    {"isdigit", IsAll<IsDigitCharacter, false>},
    {"isnumeric", IsAll<IsNumeric, false>},
    {"isalnum", IsAll<IsAlnumCharacter, false>},
    {"isspace", IsAll<IsBlank, false>},
    {"isascii", IsAll<IsAscii, true>},
    {"isprintable", IsAll<IsPrintable, true>},
    {"isupper", IsCase<true>},
    {"islower", IsCase<false>},
    {"istitle", IsTitleMethod},
    {"isidentifier", IsIdentifier},
    {"ljust", Pad<Side::kRight>},
    {"rjust", Pad<Side::kLeft>},
    {"center", Pad<Side::kBoth>},
    {"zfill", ZeroFill},
    {"expandtabs", ExpandTabs},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"format", FormatMethod},
    {"format_map", FormatMap},
};

}  // namespace

absl::Span<const NamedFunction> TextMethods() { return kMethods; }

}  // namespace tidepool::engine::jinja
