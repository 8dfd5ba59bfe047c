// Python's string methods on texts, keeping every byte's origin.
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

// Where `needle` first stands in `text`, from `from` on, or last; npos: nowhere. Linear in both
// sizes, whatever they hold: std::string's search takes their product at worst.
size_t FindText(absl::string_view text, absl::string_view needle, size_t from = 0);
size_t FindLastText(absl::string_view text, absl::string_view needle);

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Without the characters of `characters` (unset: blanks, as Unicode has them) at its ends.
Text Strip(const Text& text, Side side, const std::optional<Text>& characters);

// Parts of a text, each paid for before it is made.
using Parts = absl::StatusOr<std::vector<Text>>;

// How often to cut at most (below zero: everywhere), and which end to begin at.
struct Cuts {
  int64_t limit = -1;
  Side from = Side::kLeft;
};
// Requires a separator that is not empty.
Parts Split(const Text& text, absl::string_view separator, const Cuts& cuts, Budget* budget);
// At runs of blanks; none at the ends, but for what is left over behind `limit` words.
Parts SplitBlanks(const Text& text, int64_t limit, Budget* budget);
// The same from the right: the last words first, what is left over in front.
Parts SplitBlanksFromRight(const Text& text, int64_t limit, Budget* budget);

// Whether lines keep what ends them.
enum class LineEnds : uint8_t { kDrop, kKeep };
Parts SplitLines(const Text& text, LineEnds ends, Budget* budget);

// str.replace as a value, paid for: at most `limit` times; below zero: always. Keeps origins.
absl::StatusOr<Value> ReplaceText(const Text& text, const Text& from, const Text& to, int64_t limit,
                                  Budget* budget);

// `text` with as many `fill` beside it as make `width` characters; kLeft: on its left.
absl::StatusOr<Value> PadText(const Text& text, int64_t width, Side side, const Text& fill,
                              Budget* budget);

enum class LetterCase : uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap, kWords };
// As the methods of str; kWords as Jinja's title, whose words begin behind blanks and brackets. A
// final sigma is one behind a letter and before none.
Text ChangeCase(const Text& text, LetterCase letter_case);

// Every character as `change` appends it, with the origin that it has.
Text MapCharacters(const Text& text, std::function<void(char32_t c, std::string* out)> change);

// Offsets in bytes of each character, and the size at the end.
std::vector<size_t> CharacterOffsets(absl::string_view text);

// text[begin:end:step] in characters, Python's rules; unset: left out. Requires step != 0.
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
