// Text: a string that knows the origin of each byte: the template's author or the user.
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

  // Returns bytes [begin, end) with their origins. Requires: begin <= end <= size().
  Text Slice(size_t begin, size_t end) const;

  // Origin of a value derived from the whole text: the template's only if all bytes are.
  TextOrigin origin() const;

  // Runs of one origin, in order. Empty for the empty text.
  std::vector<TextPiece> Pieces() const;

 private:
  struct Run {
    size_t end;  // in bytes_
    TextOrigin origin;
  };

  std::string bytes_;
  std::vector<Run> runs_;  // adjacent runs have different origins; the last one ends at size()
};

// Origin of a value derived from two values.
inline TextOrigin Both(TextOrigin a, TextOrigin b) {
  return a == TextOrigin::kTemplate && b == TextOrigin::kTemplate ? a : TextOrigin::kUser;
}

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_TEXT_H_
