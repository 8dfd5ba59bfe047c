#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/jinja/functions.h"
#include "engine/tokenizer/jinja/json.h"
#include "engine/tokenizer/jinja/strings.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The input as a text; what is no string is printed first.
absl::StatusOr<Text> SelfText(const Call& call) {
  Text text = ToText(call.self);
  RETURN_IF_ERROR(call.budget.Copy(text.size()));
  return text;
}

Result Trim(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("trim", {"chars"}));
  ASSIGN_OR_RETURN(const std::optional<Text> characters, call.arguments.FindText(0, "chars"));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  return Value::MakeText(Strip(text, Side::kBoth, characters));
}

Result Default(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("default", {"default_value", "boolean"}));
  const Value* fallback = call.arguments.Find(0, "default_value");
  const Value* boolean = call.arguments.Find(1, "boolean");
  const bool falsy = boolean != nullptr && boolean->Truthy() && !call.self.Truthy();
  if (!call.self.IsUndefined() && !falsy) return call.self;
  return fallback != nullptr ? *fallback : Value::MakeText(Text());
}

Result ToJsonFilter(const Call& call) {
  RETURN_IF_ERROR(
      call.arguments.Check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  // transformers puts ensure_ascii first; Jinja's own tojson puts indent there, as an integer.
  JsonStyle style;
  const Value* ascii = call.arguments.Find(0, "ensure_ascii");
  const bool indent_first = ascii != nullptr && ascii->As<int64_t>() != nullptr;
  if (indent_first) {
    style.indent = *ascii->As<int64_t>();
  } else {
    style.ascii = ascii != nullptr && ascii->Truthy();
    ASSIGN_OR_RETURN(style.indent, call.arguments.FindInt(1, "indent"));
  }
  constexpr int64_t kMaxIndent = 16;
  if (style.indent.has_value() && (*style.indent < 0 || *style.indent > kMaxIndent)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tojson's indent is ", *style.indent, "; expected 0 to ", kMaxIndent));
  }
  if (const Value* separators = call.arguments.Find(2, "separators");
      separators != nullptr && !separators->IsNone()) {
    const List* pair = separators->AsList();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].AsText() == nullptr ||
        pair->items[1].AsText() == nullptr) {
      return absl::InvalidArgumentError("tojson's separators are a pair of strings");
    }
    style.item_separator = pair->items[0].AsText()->bytes();
    style.key_separator = pair->items[1].AsText()->bytes();
  }
  const Value* sort_keys = call.arguments.Find(3, "sort_keys");
  style.sort_keys = sort_keys != nullptr && sort_keys->Truthy();
  ASSIGN_OR_RETURN(Text text, ToJson(call.self, style));
  RETURN_IF_ERROR(call.budget.Copy(text.size()));
  return Value::MakeText(std::move(text));
}

Result CaseFilter(const Call& call, absl::string_view name, LetterCase letter_case) {
  RETURN_IF_ERROR(call.arguments.Check(name, {}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  ASSIGN_OR_RETURN(Text changed, ChangeCase(text, letter_case));
  return Value::MakeText(std::move(changed));
}

Result ToInt(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("int", {"default", "base"}));
  const Value* fallback = call.arguments.Find(0, "default");
  ASSIGN_OR_RETURN(const std::optional<int64_t> base, call.arguments.FindInt(1, "base"));
  if (base.value_or(10) != 10) return absl::UnimplementedError("int knows base 10 only");
  if (IsInteger(call.self)) return Value::MakeInt(ToInt64(call.self));
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const double* self = call.self.As<double>()) number = *self;
  if (const Text* text = call.self.AsText()) {
    const std::string digits = Strip(*text, Side::kBoth, std::nullopt).bytes();
    int64_t integer = 0;
    if (absl::SimpleAtoi(digits, &integer)) return Value::MakeInt(integer);
    if (!absl::SimpleAtod(digits, &number)) number = std::numeric_limits<double>::quiet_NaN();
  }
  constexpr double kLimit = 9.2e18;
  if (std::abs(number) < kLimit) return Value::MakeInt(static_cast<int64_t>(number));
  return fallback != nullptr ? *fallback : Value::MakeInt(0);
}

Result ToFloat(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("float", {"default"}));
  const Value* fallback = call.arguments.Find(0, "default");
  double number = 0;
  if (IsNumber(call.self)) return Value::MakeFloat(ToDouble(call.self));
  if (call.self.AsText() != nullptr && absl::SimpleAtod(call.self.AsText()->bytes(), &number)) {
    return Value::MakeFloat(number);
  }
  return fallback != nullptr ? *fallback : Value::MakeFloat(0);
}

Result Absolute(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("abs", {}));
  if (IsInteger(call.self) && ToInt64(call.self) != std::numeric_limits<int64_t>::min()) {
    return Value::MakeInt(std::abs(ToInt64(call.self)));
  }
  if (IsNumber(call.self)) return Value::MakeFloat(std::abs(ToDouble(call.self)));
  return absl::InvalidArgumentError(absl::StrCat("abs of a value of type ", TypeName(call.self)));
}

Result Round(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("round", {"precision", "method"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> precision, call.arguments.FindInt(0, "precision"));
  ASSIGN_OR_RETURN(const std::optional<Text> method, call.arguments.FindText(1, "method"));
  constexpr int64_t kMaxPrecision = 15;
  if (!IsNumber(call.self) || std::abs(precision.value_or(0)) > kMaxPrecision) {
    return absl::InvalidArgumentError("round takes a number and a precision of -15 to 15");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision.value_or(0)));
  const double scaled = ToDouble(call.self) * scale;
  const std::string how = method.has_value() ? method->bytes() : "common";
  if (how == "ceil") return Value::MakeFloat(std::ceil(scaled) / scale);
  if (how == "floor") return Value::MakeFloat(std::floor(scaled) / scale);
  if (how == "common") return Value::MakeFloat(std::nearbyint(scaled) / scale);
  return absl::InvalidArgumentError(absl::StrCat("round has no method '", how, "'"));
}

Result ReplaceFilter(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("replace", {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const std::optional<Text> from, call.arguments.FindText(0, "old"));
  ASSIGN_OR_RETURN(const std::optional<Text> to, call.arguments.FindText(1, "new"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, call.arguments.FindInt(2, "count"));
  if (!from.has_value() || !to.has_value()) {
    return absl::InvalidArgumentError("replace needs the old and the new string");
  }
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  RETURN_IF_ERROR(call.budget.Copy((text.size() + 1) * to->size()));
  return Value::MakeText(Replace(text, from->bytes(), *to, count.value_or(-1)));
}

Result Indent(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("indent", {"width", "first", "blank"}));
  const Value* width = call.arguments.Find(0, "width");
  Text blanks("    ", TextOrigin::kTemplate);
  if (width != nullptr && width->AsText() != nullptr) {
    blanks = *width->AsText();
  } else if (width != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> size, call.arguments.FindInt(0, "width"));
    constexpr int64_t kMaxWidth = 1000;
    if (size.value_or(0) < 0 || size.value_or(0) > kMaxWidth) {
      return absl::InvalidArgumentError("indent's width is 0 to 1000");
    }
    blanks = Text(std::string(static_cast<size_t>(size.value_or(0)), ' '), TextOrigin::kTemplate);
  }
  const Value* first = call.arguments.Find(1, "first");
  const Value* blank = call.arguments.Find(2, "blank");
  const bool fill_blank = blank != nullptr && blank->Truthy();
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  Text closed = text;
  closed.Append("\n", text.origin());
  const std::vector<Text> lines = SplitLines(closed, /*keep_ends=*/false);
  RETURN_IF_ERROR(call.budget.Copy(text.size() + lines.size() * blanks.size()));
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.Append("\n", text.origin());
    const bool wanted =
        i == 0 ? first != nullptr && first->Truthy() : fill_blank || !lines[i].empty();
    if (wanted) result.Append(blanks);
    result.Append(lines[i]);
  }
  return Value::MakeText(std::move(result));
}

// For HTML, as markupsafe does.
Result Escape(const Call& call) {
  RETURN_IF_ERROR(call.arguments.Check("escape", {}));
  ASSIGN_OR_RETURN(const Text text, SelfText(call));
  Text result;
  for (const TextPiece& piece : text.Pieces()) {
    result.Append(
        absl::StrReplaceAll(
            piece.text,
            {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}),
        piece.origin);
  }
  RETURN_IF_ERROR(call.budget.Copy(result.size()));
  return Value::MakeText(std::move(result));
}

// Unset: no such filter.
std::optional<Result> ApplyTextFilter(absl::string_view name, const Call& call) {
  if (name == "trim") return Trim(call);
  if (name == "upper") return CaseFilter(call, name, LetterCase::kUpper);
  if (name == "lower") return CaseFilter(call, name, LetterCase::kLower);
  if (name == "capitalize") return CaseFilter(call, name, LetterCase::kCapitalize);
  if (name == "title") return CaseFilter(call, name, LetterCase::kTitle);
  if (name == "replace") return ReplaceFilter(call);
  if (name == "indent") return Indent(call);
  if (name == "escape" || name == "e") return Escape(call);
  if (name == "string" || name == "safe") {
    auto text = SelfText(call);
    if (!text.ok()) return Result(text.status());
    return Result(Value::MakeText(*std::move(text)));
  }
  return std::nullopt;
}

}  // namespace

Result ApplyFilter(absl::string_view name, const Call& call) {
  if (auto result = ApplyTextFilter(name, call)) return *std::move(result);
  if (name == "default" || name == "d") return Default(call);
  if (name == "tojson") return ToJsonFilter(call);
  if (name == "int") return ToInt(call);
  if (name == "float") return ToFloat(call);
  if (name == "abs") return Absolute(call);
  if (name == "round") return Round(call);
  if (auto result = ApplySequenceFilter(name, call)) return *std::move(result);
  return absl::UnimplementedError(absl::StrCat("the filter '", name, "' is not supported"));
}

}  // namespace tidepool::engine::jinja
