#include "service/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/base/files.h"
#include "service/cli/console.h"

// Use results instead of exceptions, and compile the parser in this file only. Assertions are off,
// because one of version 3.3 in parse_key fails for a file such as "[+", which the parser then
// refuses correctly.
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include "toml++/toml.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxShown = 80;  // bytes of the file that an error quotes
// Each part of a dotted key becomes a nested table, and toml++ frees these recursively. A key and
// its value are on one line.
constexpr int64_t kMaxDots = 100;

int64_t DotsOutsideTexts(absl::string_view line) {
  int64_t dots = 0;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\') {
      ++i;
    } else if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else {
      dots += line[i] == '.';
    }
  }
  return dots;
}

// Makes text fit into a one-line message: keys may contain newlines.
std::string Shown(absl::string_view text) {
  absl::string_view front = text.substr(0, kMaxShown);
  front = front.substr(0, base::ValidUtf8Prefix(front));
  return OneLine(absl::StrCat("\"", front, front.size() < text.size() ? "..." : "", "\""));
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<std::vector<ConfigFileEntry>> Read(absl::string_view content) const {
    RETURN_IF_ERROR(CheckDepth(content));
    const toml::parse_result parsed = toml::parse(std::string_view(content.data(), content.size()));
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return Error(error.source().begin.line,
                   absl::StrCat("not TOML: ", OneLine(std::string(error.description())),
                                " (keys are left of =, texts are in quotes)"));
    }
    std::vector<ConfigFileEntry> entries;
    for (const auto& [key, value] : parsed.table()) {
      ConfigFileEntry entry = {.key = std::string(key.str()),
                               .line = static_cast<int>(key.source().begin.line)};
      RETURN_IF_ERROR(ReadValues(value, &entry));
      entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.line < b.line; });
    return entries;
  }

 private:
  absl::Status Error(int64_t line, absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": line ", line, ": ", message));
  }

  absl::Status CheckDepth(absl::string_view content) const {
    int64_t number = 0;
    for (const absl::string_view line : absl::StrSplit(content, '\n')) {
      ++number;
      if (DotsOutsideTexts(line) <= kMaxDots) continue;
      return Error(number, absl::StrCat(Shown(line), ": keys are flags' names, without dots"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadValues(const toml::node& value, ConfigFileEntry* entry) const {
    if (value.is_table()) {
      return Error(entry->line, absl::StrCat(Shown(entry->key),
                                             ": keys are flags' names, without sections and dots; "
                                             "no flag takes a table"));
    }
    const toml::array* list = value.as_array();
    if (list == nullptr) return ReadScalar(value, entry);
    for (const toml::node& element : *list) {
      if (element.is_array() || element.is_table()) {
        return Error(element.source().begin.line,
                     absl::StrCat(Shown(entry->key), ": no flag takes lists or tables in a list"));
      }
      RETURN_IF_ERROR(ReadScalar(element, entry));
    }
    return absl::OkStatus();
  }

  // Stores the value as the text that a command line would have.
  absl::Status ReadScalar(const toml::node& value, ConfigFileEntry* entry) const {
    std::vector<std::string>& values = entry->values;
    if (const auto text = value.value_exact<std::string>()) {
      // A command-line argument ends at a NUL byte, so no flag can accept one.
      if (absl::StrContains(*text, '\0')) {
        return Error(value.source().begin.line,
                     absl::StrCat(Shown(entry->key), " holds the character U+0000"));
      }
      values.push_back(*text);
    } else if (const auto integer = value.value_exact<int64_t>()) {
      values.push_back(absl::StrCat(*integer));
    } else if (const auto number = value.value_exact<double>()) {
      char digits[32];
      values.emplace_back(digits, std::to_chars(digits, std::end(digits), *number).ptr);
    } else if (const auto flag = value.value_exact<bool>()) {
      values.emplace_back(*flag ? "true" : "false");
    } else {
      return Error(value.source().begin.line,
                   absl::StrCat(Shown(entry->key), ": no flag takes a date or a time"));
    }
    return absl::OkStatus();
  }

  const std::string& path_;
};

}  // namespace

absl::StatusOr<std::vector<ConfigFileEntry>> ParseConfigFile(const std::string& path,
                                                             absl::string_view content) {
  return Reader(path).Read(content);
}

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxBytes));
  return ParseConfigFile(path, content);
}

}  // namespace tidepool::service
