#include "engine/grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/strip.h"

namespace tidepool::engine::grammar {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CategoryName {
  absl::string_view brief;
  absl::string_view name;
};

constexpr CategoryName kCategories[] = {
    {"L", "Letter"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"M", "Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number"},
    {"Nd", "digit"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation"},
    {"P", "punct"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"S", "Symbol"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"C", "Other"},
    {"Cc", "Control"},
    {"Cc", "cntrl"},
    {"Cf", "Format"},
    {"Co", "Private_Use"},
    {"Cn", "Unassigned"},
};

// Neighbouring code points with the same general category.
struct CategoryRange {
  absl::string_view category;
  char32_t low;
  char32_t high;
};

std::vector<CategoryRange> CategoryRanges() {
  std::vector<CategoryRange> ranges;
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    const absl::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    if (!ranges.empty() && ranges.back().category == category) {
      ranges.back().high = c;
    } else {
      ranges.push_back({category, c, c});
    }
  }
  return ranges;
}

}  // namespace

CodePointSet Complement(CodePointSet set) {
  std::sort(set.begin(), set.end());
  CodePointSet result;
  char32_t next = 0;
  for (const auto& [low, high] : set) {
    if (low > next) result.emplace_back(next, low - 1);
    next = std::max<char32_t>(next, high + 1);
  }
  if (next <= kLastCodePoint) result.emplace_back(next, kLastCodePoint);
  return result;
}

std::optional<CodePointSet> ClassOfLetter(char letter) {
  switch (letter) {
    case 'd':
      return CodePointSet{{'0', '9'}};
    case 'w':
      return CodePointSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return CodePointSet{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                          {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    case 'D':
    case 'W':
    case 'S':
      return Complement(*ClassOfLetter(static_cast<char>(letter | 0x20)));
    default:
      return std::nullopt;
  }
}

std::optional<CodePointSet> ClassOfCategory(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "General_Category=")) absl::ConsumePrefix(&name, "gc=");
  absl::string_view brief;
  for (const CategoryName& category : kCategories) {
    if (name == category.brief || name == category.name) brief = category.brief;
  }
  if (brief.empty()) return std::nullopt;
  static const auto& all = *new std::vector<CategoryRange>(CategoryRanges());
  CodePointSet set;
  for (const CategoryRange& range : all) {
    if (range.category.substr(0, brief.size()) != brief) continue;
    if (!set.empty() && set.back().second + 1 == range.low) {
      set.back().second = range.high;
    } else {
      set.emplace_back(range.low, range.high);
    }
  }
  return set;
}

}  // namespace tidepool::engine::grammar
