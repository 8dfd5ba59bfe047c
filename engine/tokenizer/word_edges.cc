#include "engine/tokenizer/word_edges.h"

#include <utf8proc.h>

#include <algorithm>

namespace tidepool::engine {
namespace {

// A character, and its size in bytes. For a byte that is not UTF-8, the code point is -1.
struct Character {
  utf8proc_int32_t code = -1;
  size_t size = 0;
};

Character First(absl::string_view text) {
  if (text.empty()) return {};
  Character first = {-1, 1};
  const utf8proc_ssize_t size = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size(), 4)), &first.code);
  if (size > 0) {
    first.size = static_cast<size_t>(size);
  } else {
    first.code = -1;
  }
  return first;
}

Character Last(absl::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(text.size(), 4); ++size) {
    const absl::string_view tail = text.substr(text.size() - size);
    const bool continues = (static_cast<unsigned char>(tail[0]) & 0xC0U) == 0x80U;
    if (continues) continue;
    const Character last = First(tail);
    if (last.size == size) return last;
    break;
  }
  return {-1, std::min<size_t>(text.size(), 1)};
}

// Returns whether the character has Unicode's property White_Space.
bool IsSpace(utf8proc_int32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

// Returns whether the character is alphabetic, a mark, a decimal digit, a connector or a joiner.
bool IsWord(utf8proc_int32_t code) {
  if (code < 0) return false;
  if (code == 0x200C || code == 0x200D) return true;
  // Circled and squared letters are in the category of symbols, but they are alphabetic.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace

size_t SpacesAtStart(absl::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Character first = First(text.substr(size));
    if (!IsSpace(first.code)) break;
    size += first.size;
  }
  return size;
}

size_t SpacesAtEnd(absl::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Character last = Last(text.substr(0, text.size() - size));
    if (!IsSpace(last.code)) break;
    size += last.size;
  }
  return size;
}

bool StartsInWord(absl::string_view text) { return IsWord(First(text).code); }

bool EndsInWord(absl::string_view text) { return IsWord(Last(text).code); }

}  // namespace tidepool::engine
