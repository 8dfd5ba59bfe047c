#include "engine/tokenizer/jinja/strings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/check.h"

namespace tidepool::engine::jinja {
namespace {

// The beginning of the last character of a text that is not empty.
size_t LastCharacter(absl::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool EndsLine(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool IsBlank(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

Text Strip(const Text& text, Side side, const std::optional<Text>& characters) {
  const absl::string_view bytes = text.bytes();
  const auto goes = [&characters, bytes](size_t begin, size_t end) {
    const absl::string_view character = bytes.substr(begin, end - begin);
    if (characters.has_value()) return absl::StrContains(characters->bytes(), character);
    return IsBlank(NextUtf8Char(character).code_point);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t next = begin + NextUtf8Char(bytes.substr(begin)).size;
    if (!goes(begin, next)) break;
    begin = next;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t last = LastCharacter(bytes.substr(0, end));
    if (!goes(last, end)) break;
    end = last;
  }
  return text.Slice(begin, end);
}

std::vector<Text> Split(const Text& text, absl::string_view separator, int64_t limit, Side from) {
  CHECK(!separator.empty());
  const absl::string_view bytes = text.bytes();
  std::vector<Text> parts;
  if (from == Side::kRight) {
    size_t end = bytes.size();
    while (limit != 0 && end >= separator.size()) {
      const size_t at = bytes.substr(0, end).rfind(separator);
      if (at == absl::string_view::npos) break;
      parts.push_back(text.Slice(at + separator.size(), end));
      end = at;
      --limit;
    }
    parts.push_back(text.Slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  for (; limit != 0; --limit) {
    const size_t at = bytes.find(separator, begin);
    if (at == absl::string_view::npos) break;
    parts.push_back(text.Slice(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.Slice(begin, bytes.size()));
  return parts;
}

std::vector<Text> SplitBlanks(const Text& text, int64_t limit) {
  std::vector<Text> parts;
  const absl::string_view bytes = text.bytes();
  size_t word = absl::string_view::npos;  // where a word began
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char next = NextUtf8Char(bytes.substr(at));
    const bool blank = IsBlank(next.code_point);
    if (!blank && word == absl::string_view::npos) {
      if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
        parts.push_back(Strip(text.Slice(at, bytes.size()), Side::kRight, std::nullopt));
        return parts;
      }
      word = at;
    } else if (blank && word != absl::string_view::npos) {
      parts.push_back(text.Slice(word, at));
      word = absl::string_view::npos;
    }
    at += next.size;
  }
  if (word != absl::string_view::npos) parts.push_back(text.Slice(word, bytes.size()));
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const absl::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char next = NextUtf8Char(bytes.substr(at));
    size_t after = at + next.size;
    if (EndsLine(next.code_point)) {
      if (next.code_point == '\r' && after < bytes.size() && bytes[after] == '\n') ++after;
      lines.push_back(text.Slice(begin, keep_ends ? after : at));
      begin = after;
    }
    at = after;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

Text Replace(const Text& text, absl::string_view from, const Text& to, int64_t limit) {
  const absl::string_view bytes = text.bytes();
  Text result;
  size_t begin = 0;
  size_t at = 0;
  while (limit != 0 && at <= bytes.size()) {
    at = bytes.find(from, at);
    if (at == absl::string_view::npos) break;
    result.Append(text.Slice(begin, at));
    result.Append(to);
    begin = at + from.size();
    // Nothing stands between any two characters: go on behind the next one.
    at = !from.empty()       ? begin
         : at < bytes.size() ? at + NextUtf8Char(bytes.substr(at)).size
                             : bytes.size() + 1;
    --limit;
  }
  result.Append(text.Slice(begin, bytes.size()));
  return result;
}

absl::StatusOr<Text> ChangeCase(const Text& text, LetterCase letter_case) {
  Text result;
  bool starts_word = true;
  for (const TextPiece& piece : text.Pieces()) {
    std::string bytes = piece.text;
    for (char& c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x80) {
        return absl::UnimplementedError(
            "changing the case of letters outside ASCII is not supported");
      }
      const bool upper =
          letter_case == LetterCase::kUpper || (letter_case != LetterCase::kLower && starts_word);
      starts_word = letter_case == LetterCase::kTitle && !absl::ascii_isalpha(byte);
      c = upper ? absl::ascii_toupper(byte) : absl::ascii_tolower(byte);
    }
    result.Append(bytes, piece.origin);
  }
  return result;
}

std::vector<size_t> CharacterOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += NextUtf8Char(text.substr(at)).size) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::vector<int64_t> SliceIndices(const SliceBounds& bounds, int64_t size) {
  CHECK_NE(bounds.step, 0);
  const bool forward = bounds.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const auto place = [size, low, high](std::optional<int64_t> index, int64_t fallback) {
    if (!index.has_value()) return fallback;
    return std::clamp(*index < 0 ? *index + size : *index, low, high);
  };
  const int64_t begin = place(bounds.begin, forward ? low : high);
  const int64_t end = place(bounds.end, forward ? high : low);
  // A step past the whole sequence is as good as any: it visits one item.
  const int64_t step = std::clamp(bounds.step, -size - 1, size + 1);
  std::vector<int64_t> indices;
  for (int64_t i = begin; forward ? i < end : i > end; i += step) indices.push_back(i);
  return indices;
}

Text SliceText(const Text& text, const SliceBounds& bounds) {
  const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
  const std::vector<int64_t> indices =
      SliceIndices(bounds, static_cast<int64_t>(offsets.size()) - 1);
  if (indices.empty()) return Text();
  if (bounds.step == 1) return text.Slice(offsets[indices.front()], offsets[indices.back() + 1]);
  Text result;
  for (const int64_t i : indices) result.Append(text.Slice(offsets[i], offsets[i + 1]));
  return result;
}

}  // namespace tidepool::engine::jinja
