// Python's string methods for Text. They keep the origin of each byte.
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

// FindText returns the first position of `needle` in `text` at or after `from`. FindLastText
// returns the last position. Both return npos if `text` does not contain `needle`. Both take linear
// time. The time of std::string's search can be proportional to the product of both sizes.
size_t FindText(absl::string_view text, absl::string_view needle, size_t from = 0);
size_t FindLastText(absl::string_view text, absl::string_view needle);

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Removes all characters that are in `characters` from one end or both ends. If `characters` is
// unset, removes Unicode whitespace.
Text Strip(const Text& text, Side side, const std::optional<Text>& characters);

// The parts of a text. The cost of each part is subtracted from the budget before the part is
// created.
using Parts = absl::StatusOr<std::vector<Text>>;

// How to split a text. `limit` is the maximum number of cuts, or negative if there is no limit.
// `from` is the side at which to begin.
struct Cuts {
  int64_t limit = -1;
  Side from = Side::kLeft;
};
// Splits at each `separator`. Requires: the separator is not empty.
Parts Split(const Text& text, absl::string_view separator, const Cuts& cuts, Budget* budget);
// Splits at runs of blanks, and ignores blanks at both ends. After `limit` words, the rest of the
// text is one part.
Parts SplitBlanks(const Text& text, int64_t limit, Budget* budget);
// Like SplitBlanks, but counts words from the right. The rest of the text is the first part.
Parts SplitBlanksFromRight(const Text& text, int64_t limit, Budget* budget);

// Whether the parts that SplitLines returns keep their line endings.
enum class LineEnds : uint8_t { kDrop, kKeep };
Parts SplitLines(const Text& text, LineEnds ends, Budget* budget);

// str.replace: replaces at most `limit` occurrences, or all if `limit` is negative. Keeps origins.
absl::StatusOr<Value> ReplaceText(const Text& text, const Text& from, const Text& to, int64_t limit,
                                  Budget* budget);

// Pads `text` with `fill` to `width` characters. Side::kLeft adds `fill` on the left.
absl::StatusOr<Value> PadText(const Text& text, int64_t width, Side side, const Text& fill,
                              Budget* budget);

enum class LetterCase : uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap, kWords };
// The methods of str that change case. kWords works like Jinja's title filter: words begin after
// blanks and brackets. A Greek sigma at the end of a word becomes a final sigma.
Text ChangeCase(const Text& text, LetterCase letter_case);

// Replaces each character by the characters that `change` appends to `out`. The new characters get
// the origin of the replaced character.
Text MapCharacters(const Text& text, std::function<void(char32_t c, std::string* out)> change);

// The byte offset of each character, followed by the size of the text.
std::vector<size_t> CharacterOffsets(absl::string_view text);

// The bounds of text[begin:end:step], in characters and by Python's rules. A bound is unset if it
// is omitted. Requires: step != 0.
struct SliceBounds {
  std::optional<int64_t> begin;
  std::optional<int64_t> end;
  int64_t step = 1;
};
// The indices that a slice of a sequence of `size` items visits, in order.
std::vector<int64_t> SliceIndices(const SliceBounds& bounds, int64_t size);
Text SliceText(const Text& text, const SliceBounds& bounds);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_STRINGS_H_
