#include "service/store/token_bytes.h"

namespace tidepool::service {

std::string PackTokens(absl::Span<const int32_t> tokens) {
  std::string bytes(tokens.size() * 4, '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t id = static_cast<uint32_t>(tokens[i]);
    for (int byte = 0; byte < 4; ++byte) bytes[i * 4 + byte] = static_cast<char>(id >> (8 * byte));
  }
  return bytes;
}

absl::Status UnpackTokens(absl::string_view bytes, std::vector<int32_t>* tokens) {
  if (bytes.size() % 4 != 0) {
    return absl::DataLossError("session store: a piece of the token log is damaged");
  }
  tokens->reserve(tokens->size() + bytes.size() / 4);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t id = 0;
    for (int byte = 0; byte < 4; ++byte) {
      id |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i + byte])) << (8 * byte);
    }
    tokens->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
