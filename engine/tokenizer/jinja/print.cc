// str() and repr().
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/jinja/value.h"
#include "engine/tokenizer/utf8.h"

namespace tidepool::engine::jinja {
namespace {

// Python's quotes and escapes. Printable characters outside ASCII stay.
std::string QuoteString(const std::string& bytes) {
  const bool double_quotes = absl::StrContains(bytes, '\'') && !absl::StrContains(bytes, '"');
  const char quote = double_quotes ? '"' : '\'';
  std::string quoted(1, quote);
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == quote || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&quoted, "\\x%02x", byte);
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back(quote);
  return quoted;
}

Text ListText(const List& list) {
  constexpr auto kOurs = TextOrigin::kTemplate;
  Text text(list.is_tuple ? "(" : "[", kOurs);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) text.Append(", ", kOurs);
    text.Append(Repr(list.items[i]));
  }
  if (list.is_tuple && list.items.size() == 1) text.Append(",", kOurs);
  text.Append(list.is_tuple ? ")" : "]", kOurs);
  return text;
}

Text DictText(const Dict& dict) {
  constexpr auto kOurs = TextOrigin::kTemplate;
  Text text("{", kOurs);
  for (const auto& [key, value] : dict.entries()) {
    if (text.size() > 1) text.Append(", ", kOurs);
    text.Append(QuoteString(key.bytes()), key.origin());
    text.Append(": ", kOurs);
    text.Append(Repr(value));
  }
  text.Append("}", kOurs);
  return text;
}

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  constexpr int kBuffer = 64;
  char buffer[kBuffer];
  const auto result = std::to_chars(buffer, buffer + kBuffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, result.ptr);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  // Python's bounds for plain notation.
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto plain = std::to_chars(buffer, buffer + kBuffer, value, std::chars_format::fixed);
  std::string text(buffer, plain.ptr);
  if (!absl::StrContains(text, '.')) text += ".0";
  return text;
}

Text ToText(const Value& value) {
  constexpr auto kOurs = TextOrigin::kTemplate;
  if (const Text* text = value.AsText()) return *text;
  if (value.IsUndefined()) return Text();
  if (value.IsNone()) return Text("None", kOurs);
  if (const bool* flag = value.As<bool>()) return Text(*flag ? "True" : "False", kOurs);
  if (const int64_t* number = value.As<int64_t>()) return Text(absl::StrCat(*number), kOurs);
  if (const double* number = value.As<double>()) return Text(FormatFloat(*number), kOurs);
  if (const List* list = value.AsList()) return ListText(*list);
  if (const Dict* dict = value.AsDict()) return DictText(*dict);
  if (const Namespace* fields = value.AsNamespace()) return DictText(fields->fields);
  return Text(absl::StrCat("<", TypeName(value), ">"), kOurs);
}

Text Repr(const Value& value) {
  const Text* text = value.AsText();
  if (text != nullptr) return Text(QuoteString(text->bytes()), text->origin());
  if (value.IsUndefined()) return Text("Undefined", TextOrigin::kTemplate);
  return ToText(value);
}

}  // namespace tidepool::engine::jinja
