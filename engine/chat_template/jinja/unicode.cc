#include "engine/chat_template/jinja/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

// Every `stride`-th character from `first` to `last`.
struct Run {
  char32_t first;
  char32_t last;
  uint32_t stride;
};

// Like Run. Each of the characters maps to the character that is `delta` higher.
struct Shift {
  char32_t first;
  char32_t last;
  uint32_t stride;
  int32_t delta;
};

// A character that maps to several characters. Unused elements are zero.
struct Special {
  char32_t from;
  char32_t to[3];
};

#include "engine/chat_template/jinja/unicode_tables.inc"

// Finds the run that contains a character. Runs of stride 2 may overlap, so it is not always the
// last run that begins before the character. But it is near that run.
template <typename Row, size_t kSize>
const Row* FindRun(const Row (&rows)[kSize], char32_t c) {
  const auto* after = std::upper_bound(std::begin(rows), std::end(rows), c,
                                       [](char32_t at, const Row& row) { return at < row.first; });
  constexpr int kBack = 8;
  for (int i = 0; i < kBack && after != std::begin(rows); ++i) {
    --after;
    if (c <= after->last && (c - after->first) % after->stride == 0) return after;
  }
  return nullptr;
}

template <size_t kShifts, size_t kSpecials>
void AppendShifted(const Shift (&shifts)[kShifts], const Special (&specials)[kSpecials], char32_t c,
                   std::string* out) {
  const auto* special =
      std::lower_bound(std::begin(specials), std::end(specials), c,
                       [](const Special& row, char32_t wanted) { return row.from < wanted; });
  if (special != std::end(specials) && special->from == c) {
    for (const char32_t to : special->to) {
      if (to != 0) base::AppendUtf8(to, out);
    }
    return;
  }
  const Shift* shift = FindRun(shifts, c);
  base::AppendUtf8(
      shift == nullptr ? c : static_cast<char32_t>(static_cast<int32_t>(c) + shift->delta), out);
}

}  // namespace

bool IsAlpha(char32_t c) { return FindRun(kAlpha, c) != nullptr; }
bool IsDecimal(char32_t c) { return FindRun(kDecimal, c) != nullptr; }
bool IsDigit(char32_t c) { return FindRun(kDigit, c) != nullptr; }
bool IsNumeric(char32_t c) { return FindRun(kNumeric, c) != nullptr; }
bool IsPrintable(char32_t c) { return FindRun(kPrintable, c) != nullptr; }
bool IsUpper(char32_t c) { return FindRun(kUpper, c) != nullptr; }
bool IsLower(char32_t c) { return FindRun(kLower, c) != nullptr; }
bool IsTitle(char32_t c) { return FindRun(kTitle, c) != nullptr; }

bool IsBlank(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

void AppendUpper(char32_t c, std::string* out) { AppendShifted(kToUpper, kToUpperSpecial, c, out); }
void AppendLower(char32_t c, std::string* out) { AppendShifted(kToLower, kToLowerSpecial, c, out); }
void AppendTitle(char32_t c, std::string* out) { AppendShifted(kToTitle, kToTitleSpecial, c, out); }

}  // namespace tidepool::engine::jinja
