// TextPiece: text that remembers who wrote it.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TEXT_PIECE_H_

#include <cstdint>
#include <string>

namespace tidepool::engine {

// Control tokens are recognised in text of the template's author, never in text of a caller: so no
// message can end its own turn and begin another's.
enum class TextOrigin : uint8_t {
  kTemplate,  // the model's own chat template, its BOS and EOS texts
  kUser,      // anything that came with a request
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
