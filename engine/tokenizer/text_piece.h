// TextPiece: text with its origin.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_

#include <cstdint>
#include <string>

namespace tidepool::engine {

// Control tokens are recognised in the template author's text, but never in a caller's text. So a
// message cannot end its own turn and begin another one.
enum class TextOrigin : uint8_t {
  kTemplate,  // the model's chat template, and its BOS and EOS texts
  kUser,      // everything from a request
};

struct TextPiece {
  std::string text;
  TextOrigin origin = TextOrigin::kUser;

  friend bool operator==(const TextPiece& a, const TextPiece& b) {
    return a.text == b.text && a.origin == b.origin;
  }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_
