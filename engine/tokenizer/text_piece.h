// TextPiece: a text and where it came from.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_

#include <cstdint>
#include <string>

namespace tidepool::engine {

// Who wrote a text. Control tokens are recognised in text of the template's author, but never in a
// caller's text. So a message cannot end its own turn and begin another turn.
enum class TextOrigin : uint8_t {
  kTemplate,  // the model's chat template, including the texts of BOS and EOS
  kUser,      // everything that comes from a request
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
