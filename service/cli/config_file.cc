#include "service/cli/config_file.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "service/cli/files.h"

#define TOML_EXCEPTIONS 0
// toml++ 3.3 asserts of some files ("[+") what only good ones keep, before it complains of them.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

namespace tidepool::service {
namespace {

// On one line, though `message` may quote line ends of the file.
absl::Status ErrorAt(absl::string_view path, int line, std::string message) {
  std::replace_if(
      message.begin(), message.end(), [](char c) { return absl::ascii_iscntrl(c); }, ' ');
  return absl::InvalidArgumentError(absl::StrCat(path, ": line ", line, ": ", message));
}

// Null for tables, dates and arrays in arrays: no flag takes one.
std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return absl::StrCat(number->get());
  if (const auto* number = node.as_floating_point()) return absl::StrFormat("%.17g", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

// Behind the string that begins at `at`, or where its line ends without its closing quote.
size_t SkipString(absl::string_view text, size_t at) {
  const char quote = text[at];
  const bool is_long = text.substr(at, 3) == std::string(3, quote);
  at += is_long ? 3 : 1;
  while (at < text.size() && (is_long || text[at] != '\n')) {
    if (quote == '"' && text[at] == '\\') {
      at += 2;
    } else if (text[at] != quote) {
      ++at;
    } else if (!is_long) {
      return at + 1;
    } else if (text.substr(at, 3) == std::string(3, quote)) {
      // Up to two more quotes belong to the string.
      at += 3;
      for (int i = 0; i < 2 && at < text.size() && text[at] == quote; ++i) ++at;
      return at;
    } else {
      ++at;
    }
  }
  return std::min(at, text.size());
}

// The line of the first control character, or of the first character outside of ASCII that is in no
// string and no comment; 0: none. TOML has no place for them, and toml++ 3.3 reaches what it marks as
// unreachable.
int LineOfStrayCharacter(absl::string_view text) {
  const auto is_control = [](char c) {
    return absl::ascii_iscntrl(c) && c != '\t' && c != '\n' && c != '\r';
  };
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  if (control != text.end()) {
    return 1 + static_cast<int>(std::count(text.begin(), control, '\n'));
  }
  constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
  size_t at = text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      at = SkipString(text, at);
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
    } else {
      ++at;
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (const int line = LineOfStrayCharacter(text); line > 0) {
    return ErrorAt(path, line,
                   "not TOML: a character outside of ASCII that is in no string and no comment, or a "
                   "control character");
  }
  const toml::parse_result parsed = toml::parse(std::string_view(text), path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return ErrorAt(path, static_cast<int>(error.source().begin.line),
                   absl::StrCat("not TOML: ", std::string(error.description())));
  }
  std::vector<ConfigFileEntry> entries;
  for (const auto& [key, node] : parsed.table()) {
    ConfigFileEntry& entry = entries.emplace_back();
    entry.key = std::string(key.str());
    entry.line = static_cast<int>(node.source().begin.line);
    const auto add = [&](const toml::node& value) {
      std::optional<std::string> scalar = ScalarText(value);
      if (!scalar.has_value()) return false;
      entry.values.push_back(*std::move(scalar));
      return true;
    };
    bool ok = true;
    if (const toml::array* array = node.as_array()) {
      for (const toml::node& element : *array) ok = ok && add(element);
    } else {
      ok = add(node);
    }
    if (!ok) {
      return ErrorAt(path, entry.line,
                     absl::StrCat("\"", entry.key,
                                  "\" is not a text, a number, true, false, or a list of those; "
                                  "keys are flags' names, without sections"));
    }
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

}  // namespace tidepool::service
