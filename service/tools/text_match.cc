#include "service/tools/text_match.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

Matched MatchString(absl::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return {Match::kYes, i + 1};
    }
  }
  return {Match::kPartial};
}

Matched MatchContainer(absl::string_view text) {
  int64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return {Match::kYes, i + 1};
    }
  }
  return {Match::kPartial};
}

}  // namespace

Matched MatchText(absl::string_view text, absl::string_view pattern) {
  size_t at = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (absl::ascii_isspace(static_cast<unsigned char>(pattern[i]))) {
      at = SkipSpace(text, at);
    } else if (at == text.size()) {
      return {Match::kPartial};
    } else if (text[at++] != pattern[i]) {
      return {Match::kNo};
    }
  }
  return {Match::kYes, at};
}

Matched MatchAny(absl::string_view text, absl::Span<const absl::string_view> patterns) {
  Match best = Match::kNo;
  for (const absl::string_view pattern : patterns) {
    const Matched matched = MatchText(text, pattern);
    if (matched.match == Match::kYes) return matched;
    best = std::max(best, matched.match);
  }
  return {best};
}

size_t SkipSpace(absl::string_view text, size_t from) {
  const size_t end = std::min(text.size(), from + kMaxSpace);
  while (from < end && absl::ascii_isspace(static_cast<unsigned char>(text[from]))) ++from;
  return from;
}

size_t BeginsAtEnd(absl::string_view text, absl::string_view word) {
  if (word.empty()) return 0;
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (absl::EndsWith(text, word.substr(0, n))) return n;
  }
  return 0;
}

Matched MatchJsonValue(absl::string_view text) {
  if (text.empty()) return {Match::kPartial};
  if (text[0] == '"') return MatchString(text);
  if (text[0] == '{' || text[0] == '[') return MatchContainer(text);
  size_t end = 0;
  while (end < text.size()) {
    const char c = text[end];
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '+' && c != '.') {
      break;
    }
    ++end;
  }
  if (end == text.size()) return {Match::kPartial};
  if (end == 0) return {Match::kNo};
  return {Match::kYes, end};
}

}  // namespace tidepool::service
