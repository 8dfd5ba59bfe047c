// Python's string methods for Text. They keep the origin of every byte.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_STRINGS_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_STRINGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/text.h"
#include "engine/chat_template/jinja/value.h"

namespace tidepool::engine::jinja {

// Returns the first position of `needle` in `text` at or after `from`, or the last one. npos if
// there is none. Takes linear time, while std::string's search can take the product of both sizes.
size_t FindText(absl::string_view text, absl::string_view needle, size_t from = 0);
size_t FindLastText(absl::string_view text, absl::string_view needle);

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Removes the characters of `characters` from the ends. Unset: Unicode whitespace.
Text Strip(const Text& text, Side side, const std::optional<Text>& characters);

// Parts of a text. Each is charged to the budget before it is created.
using Parts = absl::StatusOr<std::vector<Text>>;

// The maximum number of cuts (negative: no limit), and whether to cut from the left or the right.
struct Cuts {
  int64_t limit = -1;
  Side from = Side::kLeft;
};
// Requires: the separator is not empty.
Parts Split(const Text& text, absl::string_view separator, const Cuts& cuts, Budget* budget);
// Splits at runs of blanks and ignores blanks at the ends. After `limit` words, the rest is one
// part.
Parts SplitBlanks(const Text& text, int64_t limit, Budget* budget);
// Same from the right: the last words first, then the rest at the front.
Parts SplitBlanksFromRight(const Text& text, int64_t limit, Budget* budget);

// Whether lines keep their line end characters.
enum class LineEnds : uint8_t { kDrop, kKeep };
Parts SplitLines(const Text& text, LineEnds ends, Budget* budget);

// str.replace, charged to the budget: at most `limit` times, or without limit if it is negative.
// Keeps origins.
absl::StatusOr<Value> ReplaceText(const Text& text, const Text& from, const Text& to, int64_t limit,
                                  Budget* budget);

// Pads `text` with `fill` to `width` characters. kLeft adds the fill on the left.
absl::StatusOr<Value> PadText(const Text& text, int64_t width, Side side, const Text& fill,
                              Budget* budget);

enum class LetterCase : uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap, kWords };
// The case methods of str. kWords works like Jinja's title filter: words begin after blanks and
// brackets. A Greek sigma at the end of a word becomes a final sigma.
Text ChangeCase(const Text& text, LetterCase letter_case);

// Replaces each character by what `change` appends, with the same origin.
Text MapCharacters(const Text& text, std::function<void(char32_t c, std::string* out)> change);

// Byte offsets of all characters, and the size at the end.
std::vector<size_t> CharacterOffsets(absl::string_view text);

// The bounds of text[begin:end:step] in characters, by Python's rules. Unset: omitted. Requires:
// step != 0.
struct SliceBounds {
  std::optional<int64_t> begin;
  std::optional<int64_t> end;
  int64_t step = 1;
};
// The indices that a slice of `size` items visits, in order.
std::vector<int64_t> SliceIndices(const SliceBounds& bounds, int64_t size);
Text SliceText(const Text& text, const SliceBounds& bounds);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_STRINGS_H_
