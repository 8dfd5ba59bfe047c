// Functions for UTF-8: validation, and printable forms of invalid text.
#ifndef TIDEPOOL_KERNELS_BASE_UTF8_H_
#define TIDEPOOL_KERNELS_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::base {

// What the first bytes of a string are.
struct Utf8Char {
  enum class Kind : uint8_t {
    kWhole,  // a valid character of `size` bytes
    // the first `size` bytes of a character; the string ends before the character does
    kIncomplete,
    // `size` bytes that do not begin a character: the longest prefix of one that they match, or 1
    kInvalid,
  };
  Kind kind = Kind::kWhole;
  size_t size = 0;
  char32_t code_point = 0;  // only set for a valid character
};

// Classifies the first bytes. Requires: the string is not empty. Overlong forms, surrogates and
// values above U+10FFFF are invalid (Unicode 15, table 3-7).
Utf8Char NextUtf8Char(absl::string_view bytes);

// Returns the length of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(absl::string_view text);

// Returns INVALID_ARGUMENT "WHAT is not UTF-8: byte 0x.. at offset N" if the text is invalid.
absl::Status CheckUtf8(absl::string_view text, absl::string_view what);

// Appends `bytes` to `out`, with U+FFFD in place of each invalid sequence. An incomplete character
// at the end is returned, and not appended.
std::string AppendUtf8Lossy(absl::string_view bytes, std::string* out);

// Appends one character. Requires: `code_point` is a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

// Returns `text` for a one-line message: control characters and invalid UTF-8 become \xHH, and what
// follows `max_characters` becomes "...".
std::string EscapeControls(absl::string_view text, size_t max_characters);

// The same in single quotes, of at most 64 characters.
std::string Quoted(absl::string_view text);

inline constexpr absl::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_UTF8_H_
