#include "engine/tokenizer/byte_token.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace tidepool::engine {

std::optional<uint8_t> ParseByteToken(absl::string_view text) {
  constexpr size_t kSize = 6;
  int byte = 0;
  if (text.size() != kSize || text.substr(0, 3) != "<0x" || text[kSize - 1] != '>' ||
      !absl::ascii_isxdigit(text[3]) || !absl::ascii_isxdigit(text[4]) ||
      !absl::SimpleHexAtoi(text.substr(3, 2), &byte)) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(byte);
}

}  // namespace tidepool::engine
