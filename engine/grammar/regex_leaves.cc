// The leaves of RegexPool that are small machines: characters, JSON strings and multiples.
#include <algorithm>
#include <map>
#include <tuple>

#include "engine/grammar/regex_pool.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

// A position inside a JSON string.
enum Phase : int32_t {
  kStart = 0,
  kBody = 1,
  kBackslash = 2,   // after a backslash
  kDigits = 3,      // after \u and 0 to 3 hexadecimal digits: kDigits to kDigits + 3
  kPair = 7,        // after a high surrogate
  kPairSlash = 8,   // after the backslash that follows a high surrogate
  kPairDigits = 9,  // after the \u that follows a high surrogate, and 0 to 3 digits
};
constexpr int32_t kNeededBit = 64;  // bit of Node::y, in addition to the phase

// A position inside a multiple, before the point.
enum Place : int32_t {
  kMultipleStart = -3,
  kZero = -2,   // after a first digit 0
  kWhole = -1,  // after other digits
};

int HexValue(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const uint8_t lower = byte | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The character that a backslash and `byte` stand for, or 0.
char32_t ShortEscape(uint8_t byte) {
  switch (byte) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '"':
    case '\\':
    case '/':
      return byte;
    default:
      return 0;
  }
}

// The largest code point of `size` bytes of UTF-8.
constexpr char32_t kLastOfSize[] = {0, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

Utf8Range RangeOf(char32_t low, char32_t high) {
  std::string first, last;
  base::AppendUtf8(low, &first);
  base::AppendUtf8(high, &last);
  Utf8Range range = {};
  range.size = static_cast<int>(first.size());
  for (int i = 0; i < range.size; ++i) {
    range.low[i] = static_cast<uint8_t>(first[i]);
    range.high[i] = static_cast<uint8_t>(last[i]);
  }
  return range;
}

// Appends ranges for the code points from `low` to `high`.
void SplitRange(char32_t low, char32_t high, std::vector<Utf8Range>* out) {
  if (low > high) return;
  if (low < 0xD800 && high >= 0xD800) {
    SplitRange(low, 0xD7FF, out);
    return SplitRange(0xE000, high, out);
  }
  if (low >= 0xD800 && low <= 0xDFFF) return SplitRange(0xE000, high, out);
  for (int size = 1; size < 4; ++size) {
    if (low <= kLastOfSize[size] && high > kLastOfSize[size]) {
      SplitRange(low, kLastOfSize[size], out);
      return SplitRange(kLastOfSize[size] + 1, high, out);
    }
  }
  if (high > 0x7F) {
    for (int shift = 6; shift <= 18; shift += 6) {
      const char32_t mask = (char32_t{1} << shift) - 1;
      if ((low & ~mask) == (high & ~mask)) break;
      if ((low & mask) != 0) {
        SplitRange(low, low | mask, out);
        return SplitRange((low | mask) + 1, high, out);
      }
      if ((high & mask) != mask) {
        SplitRange(low, (high & ~mask) - 1, out);
        return SplitRange(high & ~mask, high, out);
      }
    }
  }
  out->push_back(RangeOf(low, high));
}

}  // namespace

Regex RegexPool::Characters(absl::Span<const CodePoints> ranges) {
  std::vector<Utf8Range> parts;
  for (const auto& [low, high] : ranges) {
    SplitRange(low, std::min<char32_t>(high, 0x10FFFF), &parts);
  }
  std::sort(parts.begin(), parts.end(), [](const Utf8Range& a, const Utf8Range& b) {
    return std::tie(a.size, a.low) < std::tie(b.size, b.low);
  });
  return CharacterBytes(parts, 0);
}

// Matches the bytes of the ranges from index `at` on. Requires: the ranges are sorted, and their
// bytes before `at` are equal.
Regex RegexPool::CharacterBytes(absl::Span<const Utf8Range> parts, int at) {
  // the bytes at index `at`, by the expression for the bytes after them
  std::map<Regex, ByteSet> by_rest;
  for (size_t begin = 0; begin < parts.size();) {
    const Utf8Range& first = parts[begin];
    size_t end = begin + 1;
    while (end < parts.size() && parts[end].size == first.size && at + 1 < first.size &&
           parts[end].low[at] == first.low[at] && parts[end].high[at] == first.high[at]) {
      ++end;
    }
    const Regex rest = at + 1 == first.size
                           ? kEmptyRegex
                           : CharacterBytes(parts.subspan(begin, end - begin), at + 1);
    by_rest[rest] |= ByteRange(first.low[at], first.high[at]);
    begin = end;
  }
  std::vector<Regex> choices;
  for (const auto& [rest, bytes] : by_rest) choices.push_back(Concat(Bytes(bytes), rest));
  return Or(std::move(choices));
}

// Separates the classes of the bytes that have a special meaning in a JSON string.
void RegexPool::RefineForQuoted() {
  if (refined_for_quoted_) return;
  refined_for_quoted_ = true;
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't', 'u'}) {
    Refine(ByteRange(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  }
  for (int digit = 0; digit < 10; ++digit) Refine(ByteRange('0' + digit, '0' + digit));
  for (int digit = 0; digit < 6; ++digit) {
    Refine(ByteRange('a' + digit, 'a' + digit) | ByteRange('A' + digit, 'A' + digit));
    Refine(ByteRange('a' + digit, 'a' + digit));
  }
  Refine(ByteRange(0, 0x1F));
  Refine(ByteRange(0x7F, 0x7F));
}

Regex RegexPool::Quoted(Regex content, Escapes escapes) {
  RefineForQuoted();
  if (IsNothing(content)) return kNoRegex;
  const int32_t mode = escapes == Escapes::kNeeded ? kNeededBit : 0;
  return Intern({.kind = Kind::kQuoted, .plain = true, .x = content, .y = kStart | mode}, {});
}

Regex RegexPool::QuotedAt(const Node& node, Regex content, int32_t phase, int32_t value) {
  if (content == kNoRegex) return kNoRegex;
  return Intern({.kind = Kind::kQuoted,
                 .plain = true,
                 .x = content,
                 .y = phase | (node.y & kNeededBit),
                 .z = value},
                {});
}

int32_t RegexPool::FreeCharacters(Regex regex) const {
  const Node& string = nodes_[regex];
  if (string.kind != Kind::kQuoted || (string.y & ~kNeededBit) != kBody) return 0;
  const Node& content = nodes_[string.x];
  if (content.kind == Kind::kRepeat && content.x == any_character_) return content.z;
  // Only a finite number of texts is excluded, so some text may come after any number of
  // characters.
  return IsAllButFinite(content) ? kNoLimit : 0;
}

// Returns whether the node matches all texts except for finitely many.
bool RegexPool::IsAllButFinite(const Node& node) const {
  if (node.kind != Kind::kAnd) return false;
  for (const Regex kid : KidsOf(node)) {
    if (kid == any_text_) continue;
    const Node& other = nodes_[kid];
    if (other.kind != Kind::kNot || !nodes_[other.x].finite) return false;
  }
  return true;
}

Regex RegexPool::DeriveQuoted(const Node& node, uint8_t byte) {
  const int32_t phase = node.y & ~kNeededBit;
  if (phase == kStart) return byte == '"' ? QuotedAt(node, node.x, kBody, 0) : kNoRegex;
  if (phase != kBody) return DeriveEscape(node, byte);
  if (byte == '"') return nodes_[node.x].nullable ? kEmptyRegex : kNoRegex;
  if (byte == '\\') {
    const Regex next = QuotedAt(node, node.x, kBackslash, 0);
    for (int32_t byte_class = 0; byte_class < classes(); ++byte_class) {
      if (DeriveClass(next, byte_class) != kNoRegex) return next;
    }
    return kNoRegex;
  }
  if (byte < 0x20 || byte == 0x7F) return kNoRegex;
  return QuotedAt(node, Derive(node.x, byte), kBody, 0);
}

Regex RegexPool::DeriveEscape(const Node& node, uint8_t byte) {
  const int32_t phase = node.y & ~kNeededBit;
  const bool needed = (node.y & kNeededBit) != 0;
  if (phase == kBackslash && byte != 'u') {
    const char32_t character = ShortEscape(byte);
    if (character == 0 || (character == '/' && needed)) return kNoRegex;
    return QuotedAt(node, DeriveCharacter(node.x, character), kBody, 0);
  }
  if (phase == kPair) return byte == '\\' ? QuotedAt(node, node.x, kPairSlash, node.z) : kNoRegex;
  if (phase == kPairSlash) {
    return byte == 'u' ? QuotedAt(node, node.x, kPairDigits, node.z) : kNoRegex;
  }
  const bool is_low = phase >= kPairDigits;
  const int32_t digits = phase == kBackslash ? 0 : phase - (is_low ? kPairDigits : kDigits) + 1;
  int32_t value = node.z;
  if (phase != kBackslash) {
    const int digit = HexValue(byte);
    if (digit < 0) return kNoRegex;
    // A surrogate pair has eight hexadecimal digits, which fill all 32 bits.
    value = static_cast<int32_t>(static_cast<uint32_t>(value) * 16 + static_cast<uint32_t>(digit));
  }
  // `value` has the digits of the high surrogate, followed by those of the low surrogate.
  const int shift = 4 * (4 - digits);
  if (is_low) {
    const char32_t high = (static_cast<char32_t>(value) >> (4 * digits)) - 0xD800;
    const char32_t begin = (static_cast<char32_t>(value) & ((1U << (4 * digits)) - 1)) << shift;
    const char32_t low = std::max<char32_t>(begin, 0xDC00);
    const char32_t end = std::min<char32_t>(begin + (1U << shift) - 1, 0xDFFF);
    if (low > end) return kNoRegex;
    const char32_t base = 0x10000 + (high << 10);
    if (digits == 4) return QuotedAt(node, DeriveCharacter(node.x, base + low - 0xDC00), kBody, 0);
    if (!AnyOf(node.x, base + low - 0xDC00, base + end - 0xDC00)) return kNoRegex;
    return QuotedAt(node, node.x, kPairDigits + digits, value);
  }
  const char32_t begin = static_cast<char32_t>(value) << shift;
  const char32_t end = begin + (char32_t{1} << shift) - 1;
  const bool pair = digits >= 2 && begin >= 0xD800 && end <= 0xDBFF;
  if (pair) {
    const char32_t first = 0x10000 + ((begin - 0xD800) << 10);
    if (!AnyOf(node.x, first, first + ((end - begin + 1) << 10) - 1)) return kNoRegex;
    return QuotedAt(node, node.x, digits == 4 ? kPair : kDigits + digits, value);
  }
  bool any = false;
  if (needed) {
    any = (begin < 0x20 && AnyOf(node.x, begin, std::min<char32_t>(end, 0x1F))) ||
          (end >= 0x7F && AnyOf(node.x, std::max<char32_t>(begin, 0x7F), end));
  } else {
    any = AnyOf(node.x, begin, end);
  }
  if (!any && begin <= 0xD800 && end >= 0xDBFF) any = AnyOf(node.x, 0x10000, 0x10FFFF);
  if (!any) return kNoRegex;
  if (digits < 4) return QuotedAt(node, node.x, kDigits + digits, value);
  return QuotedAt(node, DeriveCharacter(node.x, begin), kBody, 0);
}

Regex RegexPool::DeriveCharacter(Regex content, char32_t character) {
  if (character >= 0xD800 && character <= 0xDFFF) return kNoRegex;
  std::string bytes;
  base::AppendUtf8(character, &bytes);
  for (const char c : bytes) content = Derive(content, static_cast<uint8_t>(c));
  return content;
}

// Returns whether a text of `content` can begin with a character from `low` to `high`.
bool RegexPool::AnyOf(Regex content, char32_t low, char32_t high) {
  std::vector<Utf8Range> parts;
  SplitRange(low, high, &parts);
  struct Step {
    Regex regex;
    int at;
  };
  for (const Utf8Range& part : parts) {
    std::vector<Step> left = {{content, 0}};
    while (!left.empty()) {
      const Step step = left.back();
      left.pop_back();
      if (step.at == part.size) return true;
      std::bitset<256> seen;
      for (int byte = part.low[step.at]; byte <= part.high[step.at]; ++byte) {
        const int32_t byte_class = class_of_[byte];
        if (seen[byte_class]) continue;
        seen.set(byte_class);
        const Regex next = DeriveClass(step.regex, byte_class);
        if (next != kNoRegex) left.push_back({next, step.at + 1});
      }
    }
  }
  return false;
}

Regex RegexPool::Multiple(int64_t divisor, int32_t scale, MultipleForm form) {
  CHECK(divisor > 0 && divisor < (int64_t{1} << 59) && scale >= 0 && scale <= 17);
  for (int digit = 0; digit < 10; ++digit) Refine(ByteRange('0' + digit, '0' + digit));
  Refine(ByteRange('.', '.'));
  divisors_.push_back({divisor, scale, form, {}, {}});
  return MultipleAt(static_cast<int32_t>(divisors_.size() - 1), kMultipleStart, 0);
}

// `place` is kMultipleStart, kZero, kWhole, or the number of digits after the point. Returns
// kNoRegex if no text can follow.
Regex RegexPool::MultipleAt(int32_t divisor, int32_t place, int64_t remainder) {
  Divisor& spec = divisors_[divisor];
  const int64_t limit = spec.divisor;
  bool complete = place != 0 && remainder == 0;
  if (place > 0 || place == kWhole) {
    // Missing digits count as zeros.
    int64_t whole = remainder;
    int64_t values = 1;  // number of values of the digits that may follow and are significant
    for (int32_t i = std::max(place, 0); i < spec.scale; ++i) {
      whole = static_cast<int64_t>(static_cast<__int128>(whole) * 10 % limit);
      values *= 10;
    }
    complete = whole == 0;
    if (place > 0 && (limit - whole) % limit >= values) return kNoRegex;
  } else if (place == 0) {
    int64_t whole = remainder;
    int64_t values = 1;
    for (int32_t i = 0; i < spec.scale; ++i) {
      whole = static_cast<int64_t>(static_cast<__int128>(whole) * 10 % limit);
      values *= 10;
    }
    if ((limit - whole) % limit >= values) return kNoRegex;
  }
  const auto [entry, added] =
      spec.numbers.try_emplace(remainder, static_cast<int32_t>(spec.remainders.size()));
  if (added) spec.remainders.push_back(remainder);
  return Intern({.kind = Kind::kMultiple,
                 .nullable = place != kMultipleStart && complete,
                 .plain = true,
                 .x = divisor,
                 .y = place,
                 .z = entry->second},
                {});
}

Regex RegexPool::DeriveMultiple(const Node& node, uint8_t byte) {
  const Divisor& spec = divisors_[node.x];
  const int64_t remainder = spec.remainders[node.z];
  if (byte == '.') {
    const bool may = spec.form == MultipleForm::kDecimal && (node.y == kZero || node.y == kWhole);
    return may ? MultipleAt(node.x, 0, remainder) : kNoRegex;
  }
  if (byte < '0' || byte > '9' || node.y == kZero) return kNoRegex;
  if (node.y == kMultipleStart && byte == '0') return MultipleAt(node.x, kZero, 0);
  if (node.y >= spec.scale) {
    return byte == '0' ? MultipleAt(node.x, spec.scale + 1, remainder) : kNoRegex;
  }
  const auto next =
      static_cast<int64_t>((static_cast<__int128>(remainder) * 10 + (byte - '0')) % spec.divisor);
  return MultipleAt(node.x, node.y < 0 ? kWhole : node.y + 1, next);
}

}  // namespace tidepool::engine::grammar
