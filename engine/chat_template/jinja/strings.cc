#include "engine/chat_template/jinja/strings.h"

#include <algorithm>
#include <boost/algorithm/searching/knuth_morris_pratt.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/unicode.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

// Returns the start of the last character. Requires: the text is not empty.
size_t LastCharacter(absl::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Returns the size of the text without the blanks at its end.
size_t EndWithoutBlanks(absl::string_view text) {
  while (!text.empty()) {
    const size_t last = LastCharacter(text);
    if (!IsBlank(base::NextUtf8Char(text.substr(last)).code_point)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

bool EndsLine(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Searches with the algorithm of Knuth, Morris and Pratt.
template <typename Iterator>
Iterator Search(Iterator begin, Iterator end, Iterator needle, Iterator needle_end) {
  return boost::algorithm::knuth_morris_pratt<Iterator>(needle, needle_end)(begin, end).first;
}

}  // namespace

size_t FindText(absl::string_view text, absl::string_view needle, size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return absl::string_view::npos;
  if (needle.size() <= 1) return text.find(needle, from);
  const auto at = Search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(),
                         needle.begin(), needle.end());
  return at == text.end() ? absl::string_view::npos : static_cast<size_t>(at - text.begin());
}

size_t FindLastText(absl::string_view text, absl::string_view needle) {
  if (needle.size() > text.size()) return absl::string_view::npos;
  if (needle.size() <= 1) return text.rfind(needle);
  const auto at = Search(text.rbegin(), text.rend(), needle.rbegin(), needle.rend());
  if (at == text.rend()) return absl::string_view::npos;
  return static_cast<size_t>(text.rend() - at) - needle.size();
}

Text Strip(const Text& text, Side side, const std::optional<Text>& characters) {
  const absl::string_view bytes = text.bytes();
  const auto goes = [&characters, bytes](size_t begin, size_t end) {
    const absl::string_view character = bytes.substr(begin, end - begin);
    if (characters.has_value()) return absl::StrContains(characters->bytes(), character);
    return IsBlank(base::NextUtf8Char(character).code_point);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t next = begin + base::NextUtf8Char(bytes.substr(begin)).size;
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

Parts Split(const Text& text, absl::string_view separator, const Cuts& cuts, Budget* budget) {
  CHECK(!separator.empty());
  const absl::string_view bytes = text.bytes();
  const bool from_right = cuts.from == Side::kRight;
  std::vector<Text> parts;
  size_t begin = 0;  // start of the text that is not split yet
  size_t end = bytes.size();
  for (int64_t limit = cuts.limit; limit != 0; --limit) {
    const size_t at = from_right ? FindLastText(bytes.substr(0, end), separator)
                                 : FindText(bytes, separator, begin);
    if (at == absl::string_view::npos) break;
    const size_t after = at + separator.size();
    RETURN_IF_ERROR(budget->Texts(1));
    parts.push_back(from_right ? text.Slice(after, end) : text.Slice(begin, at));
    (from_right ? end : begin) = from_right ? at : after;
  }
  RETURN_IF_ERROR(budget->Texts(1));
  parts.push_back(text.Slice(begin, end));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts SplitBlanks(const Text& text, int64_t limit, Budget* budget) {
  std::vector<Text> parts;
  const absl::string_view bytes = text.bytes();
  size_t word = absl::string_view::npos;  // start of the current word
  for (size_t at = 0; at < bytes.size();) {
    const base::Utf8Char next = base::NextUtf8Char(bytes.substr(at));
    const bool blank = IsBlank(next.code_point);
    if (!blank && word == absl::string_view::npos) {
      RETURN_IF_ERROR(budget->Texts(1));
      if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
        parts.push_back(text.Slice(at, bytes.size()));
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

Parts SplitLines(const Text& text, LineEnds ends, Budget* budget) {
  std::vector<Text> lines;
  const absl::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const base::Utf8Char next = base::NextUtf8Char(bytes.substr(at));
    size_t after = at + next.size;
    if (EndsLine(next.code_point)) {
      if (next.code_point == '\r' && after < bytes.size() && bytes[after] == '\n') ++after;
      RETURN_IF_ERROR(budget->Texts(1));
      lines.push_back(text.Slice(begin, ends == LineEnds::kKeep ? after : at));
      begin = after;
    }
    at = after;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

Parts SplitBlanksFromRight(const Text& text, int64_t limit, Budget* budget) {
  ASSIGN_OR_RETURN(std::vector<Text> words, SplitBlanks(text, -1, budget));
  if (limit < 0 || static_cast<int64_t>(words.size()) <= limit) return words;
  // The end of the part that is not split. The words that were split off follow it.
  size_t end = EndWithoutBlanks(text.bytes());
  for (int64_t i = 0; i < limit; ++i) {
    const size_t word = words[words.size() - 1 - static_cast<size_t>(i)].size();
    end = EndWithoutBlanks(absl::string_view(text.bytes()).substr(0, end - word));
  }
  words.erase(words.begin(), words.end() - limit);
  words.insert(words.begin(), text.Slice(0, end));
  return words;
}

absl::StatusOr<Value> ReplaceText(const Text& text, const Text& from, const Text& to, int64_t limit,
                                  Budget* budget) {
  const absl::string_view bytes = text.bytes();
  RETURN_IF_ERROR(budget->Copy(bytes.size()));
  std::vector<size_t> places;
  size_t at = 0;
  while (limit != 0 && at <= bytes.size()) {
    at = FindText(bytes, from.bytes(), at);
    if (at == absl::string_view::npos) break;
    places.push_back(at);
    // If `from` is empty, continue after the next character.
    at = !from.empty()       ? at + from.size()
         : at < bytes.size() ? at + base::NextUtf8Char(bytes.substr(at)).size
                             : bytes.size() + 1;
    --limit;
  }
  RETURN_IF_ERROR(budget->Texts(places.size()));
  RETURN_IF_ERROR(
      budget->Grow(bytes.size() - places.size() * from.size() + places.size() * to.size()));
  Text result;
  size_t begin = 0;
  for (const size_t place : places) {
    result.Append(text.Slice(begin, place));
    result.Append(to);
    begin = place + from.size();
  }
  result.Append(text.Slice(begin, bytes.size()));
  return Value::MakeText(std::move(result));
}

absl::StatusOr<Value> PadText(const Text& text, int64_t width, Side side, const Text& fill,
                              Budget* budget) {
  const auto size = static_cast<int64_t>(CharacterOffsets(text.bytes()).size()) - 1;
  if (width <= size) return Value::MakeText(text);
  const auto missing = static_cast<size_t>(width - size);
  // Check the number of characters alone first, because the product below could overflow.
  RETURN_IF_ERROR(budget->Grow(missing));
  RETURN_IF_ERROR(budget->Grow(text.size() + missing * fill.size()));
  // If the number of fill characters is odd, one side gets one more than the other. In str.center,
  // this is the left side if the width is odd, and the right side otherwise.
  const size_t left = side == Side::kLeft    ? missing
                      : side == Side::kRight ? 0
                                             : missing / 2 + (missing & width & 1);
  Text result;
  for (size_t i = 0; i < left; ++i) result.Append(fill);
  result.Append(text);
  for (size_t i = left; i < missing; ++i) result.Append(fill);
  return Value::MakeText(std::move(result));
}

Text MapCharacters(const Text& text, std::function<void(char32_t c, std::string* out)> change) {
  Text result;
  std::string changed;
  for (const TextPiece& piece : text.Pieces()) {
    changed.clear();
    for (absl::string_view rest = piece.text; !rest.empty();) {
      const base::Utf8Char next = base::NextUtf8Char(rest);
      // If the bytes of a character have two origins, the character does not change.
      if (next.kind == base::Utf8Char::Kind::kWhole) {
        change(next.code_point, &changed);
      } else {
        absl::StrAppend(&changed, rest.substr(0, next.size));
      }
      rest.remove_prefix(next.size);
    }
    result.Append(changed, piece.origin);
  }
  return result;
}

namespace {

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// Returns for each character whether it is cased. The last element, after the end of the text, is
// false.
std::vector<bool> CasedCharacters(const Text& text) {
  std::vector<bool> cased;
  for (absl::string_view rest = text.bytes(); !rest.empty();) {
    const base::Utf8Char next = base::NextUtf8Char(rest);
    cased.push_back(IsCased(next.code_point));
    rest.remove_prefix(next.size);
  }
  return cased;
}

}  // namespace

Text ChangeCase(const Text& text, LetterCase letter_case) {
  const bool has_sigma = absl::StrContains(text.bytes(), "\xCE\xA3");
  const std::vector<bool> cased = has_sigma ? CasedCharacters(text) : std::vector<bool>();
  size_t at = 0;
  bool in_word = false;
  const auto lower = [&cased, &at](char32_t c, std::string* out) {
    const bool final =
        c == kSigma && at > 0 && cased[at - 1] && !(at + 1 < cased.size() && cased[at + 1]);
    final ? base::AppendUtf8(kFinalSigma, out) : AppendLower(c, out);
  };
  return MapCharacters(text, [&](char32_t c, std::string* out) {
    switch (letter_case) {
      case LetterCase::kUpper:
        AppendUpper(c, out);
        break;
      case LetterCase::kLower:
        lower(c, out);
        break;
      case LetterCase::kCapitalize:
        at == 0 ? AppendTitle(c, out) : lower(c, out);
        break;
      case LetterCase::kTitle:
        in_word ? lower(c, out) : AppendTitle(c, out);
        in_word = IsCased(c);
        break;
      case LetterCase::kWords:
        in_word ? lower(c, out) : AppendUpper(c, out);
        in_word = !IsBlank(c) && (c >= 0x80 || !absl::StrContains("-({[<", static_cast<char>(c)));
        break;
      case LetterCase::kSwap:
        IsUpper(c) ? lower(c, out) : IsLower(c) ? AppendUpper(c, out) : base::AppendUtf8(c, out);
        break;
    }
    ++at;
  });
}

std::vector<size_t> CharacterOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += base::NextUtf8Char(text.substr(at)).size) {
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
  // If the step is larger than the sequence, only one item is visited. So a larger step can be
  // clamped.
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
