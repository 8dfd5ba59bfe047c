// UTF-8: where it is broken, and how broken text is shown.
#ifndef TIDEPOOL_KERNELS_BASE_UTF8_H_
#define TIDEPOOL_KERNELS_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::base {

// What the front of a byte string is.
struct Utf8Char {
  enum class Kind : uint8_t {
    kWhole,       // a character of `size` bytes
    kIncomplete,  // the beginning of one, `size` bytes: the string ends too early
    kInvalid,     // `size` bytes that can never begin one: the longest prefix that could have, or 1
  };
  Kind kind = Kind::kWhole;
  size_t size = 0;
  char32_t code_point = 0;  // of a whole character
};

// Requires a string that is not empty. Overlong forms, surrogates and values past U+10FFFF are
// invalid (Unicode 15, table 3-7).
Utf8Char NextUtf8Char(absl::string_view bytes);

// How many bytes at the front are UTF-8, up to the first that are not.
size_t ValidUtf8Prefix(absl::string_view text);

// INVALID_ARGUMENT "WHAT is not UTF-8: byte 0x.. at offset N".
absl::Status CheckUtf8(absl::string_view text, absl::string_view what);

// Appends `bytes` to `out`, U+FFFD for each invalid stretch, and returns the bytes of an incomplete
// character at the end, which are not appended.
std::string AppendUtf8Lossy(absl::string_view bytes, std::string* out);

// Appends one character. Requires a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

// `text` between single quotes for a message of one line: control characters and broken UTF-8 as
// \xHH, and "..." for what is past 64 characters.
std::string Quoted(absl::string_view text);

inline constexpr absl::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_UTF8_H_
