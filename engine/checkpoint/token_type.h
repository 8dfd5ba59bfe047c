// TokenType: the types of tokens in tokenizer.ggml.token_type.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_TOKEN_TYPE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_TOKEN_TYPE_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidepool::engine {

// The numbers are GGUF's.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The text of an id without a token. llama.cpp's converter writes the same text. The token's type
// is kUnused.
inline std::string PlaceholderToken(int64_t id) { return absl::StrCat("[PAD", id, "]"); }

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_TOKEN_TYPE_H_
