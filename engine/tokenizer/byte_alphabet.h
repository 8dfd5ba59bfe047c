// The alphabet of byte-level vocabularies (GPT-2's table). Each of the 256 bytes is written as one
// printable character. For example, " the" is "Ġthe" in the file.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_BYTE_ALPHABET_H_
#define TIDEPOOL_ENGINE_TOKENIZER_BYTE_ALPHABET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

// Writes bytes in the alphabet. Printable Latin-1 characters stay the same. The other 68 bytes
// become U+0100, U+0101, ... in order.
std::string BytesToAlphabet(absl::string_view bytes);

// The inverse of BytesToAlphabet. Returns nullopt if `writing` has a character outside the
// alphabet.
std::optional<std::string> AlphabetToBytes(absl::string_view writing);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BYTE_ALPHABET_H_
