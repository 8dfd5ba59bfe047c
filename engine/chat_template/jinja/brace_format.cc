// Implements `format.format(arguments)`.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/format.h"
#include "engine/chat_template/jinja/functions.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Returns the text before the first character of `ends` that is outside of brackets.
size_t FindEnd(absl::string_view text, absl::string_view ends) {
  bool bracket = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!bracket && absl::StrContains(ends, text[i])) return i;
    if (text[i] == '[') bracket = true;
    if (text[i] == ']') bracket = false;
  }
  return text.size();
}

// Parses "[[fill]align][sign][#][0][width][grouping][.precision][type]".
absl::StatusOr<FormatSpec> ParseSpec(const Text& spec_text, absl::string_view what) {
  FormatSpec spec;
  absl::string_view rest = spec_text.bytes();
  const auto invalid = [what](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the format of ", what, ": ", why));
  };
  const size_t first = rest.empty() ? 0 : base::NextUtf8Char(rest).size;
  if (first < rest.size() && absl::StrContains("<>=^", rest[first])) {
    spec.fill = spec_text.Slice(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && absl::StrContains("<>=^", rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  const auto take = [&rest](absl::string_view any) -> char {
    if (rest.empty() || !absl::StrContains(any, rest[0])) return 0;
    const char taken = rest[0];
    rest.remove_prefix(1);
    return taken;
  };
  const auto number = [&rest]() -> std::optional<int64_t> {
    size_t size = 0;
    while (size < rest.size() && absl::ascii_isdigit(rest[size])) ++size;
    int64_t value = 0;
    if (!absl::SimpleAtoi(rest.substr(0, size), &value)) return std::nullopt;
    rest.remove_prefix(size);
    return value;
  };
  const char sign = take("+- ");
  spec.sign = sign == '-' ? 0 : sign;
  spec.alternate = take("#") != 0;
  const bool zeros = take("0") != 0;
  if (zeros && spec.align == 0) {
    spec.align = '=';
    spec.fill = Text("0", TextOrigin::kTemplate);
  }
  spec.width = number().value_or(0);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    spec.precision = number();
    if (!spec.precision.has_value()) return invalid("a precision is missing");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!rest.empty()) return invalid(absl::StrCat("'", spec_text.bytes(), "' is unknown"));
  if (zeros && spec.grouping != 0) {
    return absl::UnimplementedError("zeros with separators between them are not supported");
  }
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(const Arguments& arguments, Budget* budget)
      : arguments_(arguments), budget_(*budget) {}

  absl::StatusOr<Text> Run(const Text& format, int depth) {
    if (depth > 2) return absl::InvalidArgumentError("fields of a format are nested too deep");
    const absl::string_view bytes = format.bytes();
    RETURN_IF_ERROR(budget_.Copy(bytes.size()));
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.Append(format.Slice(at, brace));
      at = brace;
      if (at == bytes.size()) break;
      RETURN_IF_ERROR(budget_.Step());
      if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
        out.Append(format.Slice(at, at + 1));
        at += 2;
        continue;
      }
      if (bytes[at] == '}') return absl::InvalidArgumentError("a format has an unmatched '}'");
      const size_t end = FieldEnd(bytes, at + 1);
      if (end == absl::string_view::npos) {
        return absl::InvalidArgumentError("a format has an unmatched '{'");
      }
      ASSIGN_OR_RETURN(const Text field, Field(format.Slice(at + 1, end), depth));
      out.Append(field);
      at = end + 1;
    }
    RETURN_IF_ERROR(budget_.Grow(out.size()));
    return out;
  }

 private:
  // Returns the position of the '}' that closes the field at `at`.
  static size_t FieldEnd(absl::string_view bytes, size_t at) {
    int open = 1;
    for (; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    return absl::string_view::npos;
  }

  // Formats a field "name!conversion:spec".
  absl::StatusOr<Text> Field(const Text& field, int depth) {
    const absl::string_view bytes = field.bytes();
    const size_t name_end = FindEnd(bytes, "!:");
    ASSIGN_OR_RETURN(Value value, Find(bytes.substr(0, name_end)));
    RETURN_IF_ERROR(budget_.Visit(value));
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : 0;
      if (!absl::StrContains("sr", conversion) || conversion == 0) {
        return absl::InvalidArgumentError("a format's conversion must be !s or !r");
      }
      value = Value::MakeText(conversion == 's' ? ToText(value) : Repr(value));
      at += 2;
      if (at < bytes.size() && bytes[at] != ':') {
        return absl::InvalidArgumentError("a format's conversion must be one letter");
      }
    }
    if (at >= bytes.size()) return ToText(value);
    ASSIGN_OR_RETURN(const Text spec_text, Run(field.Slice(at + 1, bytes.size()), depth + 1));
    return Apply(value, spec_text);
  }

  absl::StatusOr<Text> Apply(const Value& value, const Text& spec_text) {
    if (spec_text.empty()) return ToText(value);
    ASSIGN_OR_RETURN(const FormatSpec spec, ParseSpec(spec_text, TypeName(value)));
    const bool is_text = value.AsText() != nullptr;
    if (!is_text && !IsNumber(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a value of type ", TypeName(value), " cannot be formatted"));
    }
    if (spec.precision.value_or(0) > kMaxPrecision && !is_text) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a format's precision is above ", kMaxPrecision));
    }
    const bool fits = is_text ? (spec.type == 0 || spec.type == 's') && spec.align != '=' &&
                                    spec.sign == 0 && !spec.alternate && spec.grouping == 0
                              : !absl::StrContains("cns", spec.type) || spec.type == 0;
    const bool exact =
        IsInteger(value) && (spec.type == 0 || absl::StrContains("bdoxX", spec.type));
    if (!fits || (exact && spec.precision.has_value())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the format '", spec_text.bytes(), "' does not fit a value of type ", TypeName(value)));
    }
    ASSIGN_OR_RETURN(const Value text, is_text ? FormatText(*value.AsText(), spec, &budget_)
                                               : FormatNumber(value, spec, &budget_));
    return *text.AsText();
  }

  // Evaluates "", "0" or "name", followed by any number of ".attribute" and "[key]".
  Result Find(absl::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    ASSIGN_OR_RETURN(Value value, Argument(path.substr(0, end)));
    path.remove_prefix(end);
    while (!path.empty()) {
      if (value.IsUndefined()) return absl::InvalidArgumentError(*value.As<Undefined>()->what);
      const bool is_key = path[0] == '[';
      const size_t stop =
          is_key ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (stop == absl::string_view::npos || (!is_key && path[0] != '.')) {
        return absl::InvalidArgumentError("a field of a format has an unmatched '['");
      }
      const absl::string_view name = path.substr(1, stop - 1);
      int64_t index = 0;
      const Value key = is_key && absl::SimpleAtoi(name, &index)
                            ? Value::MakeInt(index)
                            : Value::MakeText(name, TextOrigin::kTemplate);
      ASSIGN_OR_RETURN(value, GetItem(value, key));
      path.remove_prefix(is_key ? stop + 1 : stop);
    }
    return value;
  }

  Result Argument(absl::string_view name) {
    size_t place = 0;
    if (name.empty()) {
      place = next_++;
    } else if (!absl::SimpleAtoi(name, &place)) {
      for (const auto& [given, value] : arguments_.named) {
        if (given == name) return value;
      }
      return absl::InvalidArgumentError(absl::StrCat("format has no argument '", name, "'"));
    }
    if (place < arguments_.positional.size()) return arguments_.positional[place];
    return absl::InvalidArgumentError(absl::StrCat("format has no argument ", place));
  }

  const Arguments& arguments_;
  Budget& budget_;
  size_t next_ = 0;
};

}  // namespace

Result FormatBraces(const Text& format, const Arguments& arguments, Budget* budget) {
  ASSIGN_OR_RETURN(Text text, BraceFormatter(arguments, budget).Run(format, 1));
  return Value::MakeText(std::move(text));
}

}  // namespace tidepool::engine::jinja
