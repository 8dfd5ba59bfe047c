// Text: a string with the origin of each byte, which is the template's author or the user.
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

  // The origin of a value that is derived from the whole text: kTemplate if all bytes have it,
  // otherwise kUser.
  TextOrigin origin() const;

  // The runs of bytes of the same origin, in order. Empty for the empty text.
  std::vector<TextPiece> Pieces() const;

 private:
  struct Run {
    size_t end;  // end of the run, as an offset in bytes_
    TextOrigin origin;
  };

  std::string bytes_;
  std::vector<Run> runs_;  // adjacent runs have different origins; the last run ends at size()
};

// The origin of a value that is derived from two values.
inline TextOrigin Both(TextOrigin a, TextOrigin b) {
  return a == TextOrigin::kTemplate && b == TextOrigin::kTemplate ? a : TextOrigin::kUser;
}

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_TEXT_H_
