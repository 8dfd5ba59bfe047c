// Text: a string that knows, byte by byte, who wrote it.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_TEXT_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/tokenizer/text_piece.h"

namespace tidepool::engine::jinja {

// Thread-compatible.
class Text {
 public:
  Text() = default;
  Text(absl::string_view bytes, TextOrigin origin);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(const Text& other);
  void Append(absl::string_view bytes, TextOrigin origin);

  // Bytes [begin, end) with their origins. Requires begin <= end <= size().
  Text Slice(size_t begin, size_t end) const;

  // The origin of what is made of this text as a whole: the template's only if all of it is.
  TextOrigin origin() const;

  // Stretches of one origin, in order; none for the empty text.
  std::vector<TextPiece> Pieces() const;

 private:
  struct Run {
    size_t end;  // in bytes_
    TextOrigin origin;
  };

  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ; the last one ends at size()
};

// The origin of what is made of two.
inline TextOrigin Both(TextOrigin a, TextOrigin b) {
  return a == TextOrigin::kTemplate && b == TextOrigin::kTemplate ? a : TextOrigin::kUser;
}

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_TEXT_H_
