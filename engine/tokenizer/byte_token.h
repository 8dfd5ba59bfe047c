// Byte tokens: tokens such as "<0x0A>", each of which represents one byte.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_BYTE_TOKEN_H_
#define TIDEPOOL_ENGINE_TOKENIZER_BYTE_TOKEN_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

// Returns the byte of a name such as "<0x0A>", and nullopt for any other text.
std::optional<uint8_t> ParseByteToken(absl::string_view text);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BYTE_TOKEN_H_
