// Filters for strings.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/strings.h"
#include "engine/chat_template/jinja/unicode.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Trim(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("trim", {"chars"}));
  ASSIGN_OR_RETURN(const std::optional<Text> characters, call.arguments.FindText(0, "chars"));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  if (characters.has_value()) {
    // The search has a cost in the budget, because each character of the text may be compared with
    // all of `characters`.
    RETURN_IF_ERROR(call.budget.Copy(characters->size() * text.size()));
  }
  return Value::MakeText(Strip(text, Side::kBoth, characters));
}

template <LetterCase kCase>
Result CaseFilter(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("a filter of case", {}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  return Value::MakeText(ChangeCase(text, kCase));
}

Result ReplaceFilter(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("replace", {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, call.arguments.FindInt(2, "count"));
  const Value* from = call.arguments.Find(0, "old");
  const Value* to = call.arguments.Find(1, "new");
  if (from == nullptr || to == nullptr) {
    return absl::InvalidArgumentError("replace needs the old and the new string");
  }
  const Arguments none;
  ASSIGN_OR_RETURN(const Text old_text, SelfText({*from, none, call.budget}));
  ASSIGN_OR_RETURN(const Text new_text, SelfText({*to, none, call.budget}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  return ReplaceText(text, old_text, new_text, count.value_or(-1), &call.budget);
}

Result Indent(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("indent", {"width", "first", "blank"}));
  const Value* width = call.arguments.Find(0, "width");
  Text blanks("    ", TextOrigin::kTemplate);
  if (width != nullptr && width->AsText() != nullptr) {
    blanks = *width->AsText();
  } else if (width != nullptr) {
    if (!IsInteger(*width)) {
      return absl::InvalidArgumentError("indent's width must be a number or a string");
    }
    const auto size = static_cast<size_t>(std::max<int64_t>(ToInt64(*width), 0));
    RETURN_IF_ERROR(call.budget.Grow(size));
    blanks = Text(std::string(size, ' '), TextOrigin::kTemplate);
  }
  if (call.self.AsText() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("indent of a value of type ", TypeName(call.self), ", which is not a string"));
  }
  const bool first = call.arguments.FindFlag(1, "first");
  const bool fill_blank = call.arguments.FindFlag(2, "blank");
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  Text closed = text;
  closed.Append("\n", text.origin());
  ASSIGN_OR_RETURN(const std::vector<Text> lines,
                   SplitLines(closed, LineEnds::kDrop, &call.budget));
  RETURN_IF_ERROR(call.budget.Grow(text.size() + lines.size() * (blanks.size() + 1)));
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.Append("\n", text.origin());
    if (i == 0 ? first : fill_blank || !lines[i].empty()) result.Append(blanks);
    result.Append(lines[i]);
  }
  return Value::MakeText(std::move(result));
}

// Escapes a text for HTML, as markupsafe does.
Result Escape(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("escape", {}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  RETURN_IF_ERROR(call.budget.Copy(5 * text.size()));
  Text result;
  for (const TextPiece& piece : text.Pieces()) {
    result.Append(
        absl::StrReplaceAll(
            piece.text,
            {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}),
        piece.origin);
  }
  RETURN_IF_ERROR(call.budget.Grow(result.size()));
  return Value::MakeText(std::move(result));
}

// Implements string and safe. The safe filter excludes a text from autoescape, which is always off
// here.
Result ToString(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("string", {}));
  ASSIGN_OR_RETURN(Text text, SelfText(call));
  return Value::MakeText(std::move(text));
}

Result Center(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("center", {"width"}));
  constexpr int64_t kWidth = 80;
  ASSIGN_OR_RETURN(const std::optional<int64_t> width, call.arguments.FindInt(0, "width"));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  return PadText(text, width.value_or(kWidth), Side::kBoth, Text(" ", TextOrigin::kTemplate),
                 &call.budget);
}

Result Truncate(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("truncate", {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.arguments.FindInt(0, "length"));
  ASSIGN_OR_RETURN(const std::optional<Text> given_end, call.arguments.FindText(2, "end"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> leeway, call.arguments.FindInt(3, "leeway"));
  constexpr int64_t kLength = 255;
  constexpr int64_t kLeeway = 5;
  const int64_t length = given.value_or(kLength);
  const Text end = given_end.value_or(Text("...", TextOrigin::kTemplate));
  const auto size_of = [](const Text& text) {
    return static_cast<int64_t>(CharacterOffsets(text.bytes()).size()) - 1;
  };
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  RETURN_IF_ERROR(call.budget.Copy(sizeof(size_t) * (text.size() + end.size())));
  const int64_t end_size = size_of(end);
  if (length < end_size || leeway.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        "truncate: the length must be at least the length of the end");
  }
  if (size_of(text) - leeway.value_or(kLeeway) <= length) return Value::MakeText(text);
  Text result = SliceText(text, {std::nullopt, length - end_size, 1});
  if (!call.arguments.FindFlag(1, "killwords")) {
    ASSIGN_OR_RETURN(std::vector<Text> words, Split(result, " ", {1, Side::kRight}, &call.budget));
    result = std::move(words[0]);
  }
  result.Append(end);
  return Value::MakeText(std::move(result));
}

Result WordCount(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("wordcount", {}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  RETURN_IF_ERROR(call.budget.Characters(text.size()));
  int64_t words = 0;
  bool inside = false;
  for (absl::string_view rest = text.bytes(); !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    const bool is_word = IsWord(next.code_point);
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
    rest.remove_prefix(next.size);
  }
  return Value::MakeInt(words);
}

Result FormatFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Text format, SelfText(call));
  if (call.arguments.named.empty()) {
    return FormatPercent(format, Value::MakeTuple(call.arguments.positional), &call.budget);
  }
  if (!call.arguments.positional.empty()) {
    return absl::InvalidArgumentError("format accepts positional or named values, not both");
  }
  Dict named;
  for (const auto& [name, value] : call.arguments.named) {
    named.Set(Text(name, TextOrigin::kTemplate), value);
  }
  return FormatPercent(format, Value::MakeDict(std::move(named)), &call.budget);
}

// Quotes one string. In a query, slashes are also quoted, and blanks become plus signs.
Text QuoteUrl(const Text& text, bool is_query) {
  Text quoted;
  for (const TextPiece& piece : text.Pieces()) {
    std::string bytes;
    for (const char c : piece.text) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain =
          absl::ascii_isalnum(byte) || absl::StrContains("_.-~", c) || (c == '/' && !is_query);
      if (plain) {
        bytes.push_back(c);
      } else if (c == ' ' && is_query) {
        bytes.push_back('+');
      } else {
        absl::StrAppendFormat(&bytes, "%%%02X", byte);
      }
    }
    quoted.Append(bytes, piece.origin);
  }
  return quoted;
}

Result UrlEncode(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("urlencode", {}));
  const Arguments none;
  const bool is_pairs = call.self.AsDict() != nullptr || call.self.AsList() != nullptr;
  if (!is_pairs) {
    ASSIGN_OR_RETURN(const Text text, SelfText(call));
    RETURN_IF_ERROR(call.budget.Characters(text.size()));
    RETURN_IF_ERROR(call.budget.Grow(3 * text.size()));
    return Value::MakeText(QuoteUrl(text, /*is_query=*/false));
  }
  Value pairs = call.self;
  if (call.self.AsDict() != nullptr) {
    ASSIGN_OR_RETURN(pairs, ApplyFilter("items", {call.self, none, call.budget}));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, SelfItems({pairs, none, call.budget}));
  Text result;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const std::vector<Value> pair, SelfItems({item, none, call.budget}));
    if (pair.size() != 2) return absl::InvalidArgumentError("urlencode needs pairs");
    if (!result.empty()) result.Append("&", TextOrigin::kTemplate);
    for (size_t i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(const Text part, SelfText({pair[i], none, call.budget}));
      RETURN_IF_ERROR(call.budget.Characters(part.size()));
      RETURN_IF_ERROR(call.budget.Grow(result.size() + 3 * part.size()));
      if (i == 1) result.Append("=", TextOrigin::kTemplate);
      result.Append(QuoteUrl(part, /*is_query=*/true));
    }
  }
  return Value::MakeText(std::move(result));
}

constexpr NamedFunction kFilters[] = {
    {"trim", Trim},
    {"upper", CaseFilter<LetterCase::kUpper>},
    {"lower", CaseFilter<LetterCase::kLower>},
    {"capitalize", CaseFilter<LetterCase::kCapitalize>},
    {"title", CaseFilter<LetterCase::kWords>},
    {"replace", ReplaceFilter},
    {"indent", Indent},
    {"escape", Escape},
    {"e", Escape},
    {"forceescape", Escape},
    {"string", ToString},
    {"safe", ToString},
    {"center", Center},
    {"truncate", Truncate},
    {"wordcount", WordCount},
    {"format", FormatFilter},
    {"urlencode", UrlEncode},
};

}  // namespace

absl::Span<const NamedFunction> TextFilters() { return kFilters; }

}  // namespace tidepool::engine::jinja
