// Implements str() and repr().
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/chat_template/jinja/unicode.h"
#include "engine/chat_template/jinja/value.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

constexpr auto kOurs = TextOrigin::kTemplate;

// The text before the items in the repr of a dict view.
absl::string_view ViewName(List::Kind kind) {
  return kind == List::Kind::kKeys     ? "dict_keys(["
         : kind == List::Kind::kValues ? "dict_values(["
                                       : "dict_items([";
}

Text ListText(const List& list) {
  if (list.kind == List::Kind::kRange) return Text(list.range_text, kOurs);
  // Python prints an address here. Addresses differ between runs, so they are omitted.
  if (list.kind == List::Kind::kGenerator) return Text("<generator>", kOurs);
  const bool is_view = !list.IsTuple() && list.kind != List::Kind::kList;
  Text text(is_view ? ViewName(list.kind) : list.IsTuple() ? "(" : "[", kOurs);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) text.Append(", ", kOurs);
    text.Append(Repr(list.items[i]));
  }
  if (list.IsTuple() && list.items.size() == 1) text.Append(",", kOurs);
  text.Append(is_view ? "])" : list.IsTuple() ? ")" : "]", kOurs);
  return text;
}

Text DictText(const Dict& dict) {
  Text text("{", kOurs);
  for (const auto& [key, value] : dict.entries()) {
    if (text.size() > 1) text.Append(", ", kOurs);
    text.Append(Repr(key));
    text.Append(": ", kOurs);
    text.Append(Repr(value));
  }
  text.Append("}", kOurs);
  return text;
}

}  // namespace

// Puts a string in quotes and escapes it as Python does.
std::string QuoteString(absl::string_view bytes) {
  const bool double_quotes = absl::StrContains(bytes, '\'') && !absl::StrContains(bytes, '"');
  const char quote = double_quotes ? '"' : '\'';
  std::string quoted(1, quote);
  for (; !bytes.empty(); bytes.remove_prefix(base::NextUtf8Char(bytes).size)) {
    const base::Utf8Char next = base::NextUtf8Char(bytes);
    const auto c = static_cast<uint32_t>(next.code_point);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(bytes[0]);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      quoted += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(next.code_point)) {
      absl::StrAppend(&quoted, bytes.substr(0, next.size));
    } else if (c < 0x100) {
      absl::StrAppendFormat(&quoted, "\\x%02x", c);
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      absl::StrAppendFormat(&quoted, "\\U%08x", c);
    }
  }
  quoted.push_back(quote);
  return quoted;
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  constexpr int kBuffer = 64;
  char buffer[kBuffer];
  const auto result = std::to_chars(buffer, buffer + kBuffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, result.ptr);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  // Outside of these limits, Python uses scientific notation.
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto plain = std::to_chars(buffer, buffer + kBuffer, value, std::chars_format::fixed);
  std::string text(buffer, plain.ptr);
  if (!absl::StrContains(text, '.')) text += ".0";
  return text;
}

Text ToText(const Value& value) {
  if (const Text* text = value.AsText()) return *text;
  if (value.IsUndefined()) return Text();
  if (value.IsNone()) return Text("None", kOurs);
  if (const bool* flag = value.As<bool>()) return Text(*flag ? "True" : "False", kOurs);
  if (const int64_t* number = value.As<int64_t>()) return Text(absl::StrCat(*number), kOurs);
  if (const double* number = value.As<double>()) return Text(FormatFloat(*number), kOurs);
  if (const List* list = value.AsList()) return ListText(*list);
  if (const Dict* dict = value.AsDict()) return DictText(*dict);
  // The contents of a namespace are not printed, because they may include the namespace itself.
  return Text(absl::StrCat("<", TypeName(value), ">"), kOurs);
}

Text Repr(const Value& value) {
  const Text* text = value.AsText();
  if (text != nullptr) return Text(QuoteString(text->bytes()), text->origin());
  if (value.IsUndefined()) return Text("Undefined", kOurs);
  return ToText(value);
}

}  // namespace tidepool::engine::jinja
