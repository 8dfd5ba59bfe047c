#include "engine/chat_template/jinja/text.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace tidepool::engine::jinja {

Text::Text(absl::string_view bytes, TextOrigin origin) { Append(bytes, origin); }

void Text::Append(absl::string_view bytes, TextOrigin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes.data(), bytes.size());
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::Append(const Text& other) {
  size_t begin = 0;
  for (size_t i = 0; i < other.runs_.size(); ++i) {
    const Run run = other.runs_[i];
    Append(absl::string_view(other.bytes_).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  CHECK_LE(begin, end);
  CHECK_LE(end, bytes_.size());
  Text slice;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](size_t at, const Run& candidate) { return at < candidate.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    slice.Append(absl::string_view(bytes_).substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
  return slice;
}

TextOrigin Text::origin() const {
  if (runs_.empty()) return TextOrigin::kTemplate;
  return runs_.size() == 1 ? runs_.front().origin : TextOrigin::kUser;
}

std::vector<TextPiece> Text::Pieces() const {
  std::vector<TextPiece> pieces;
  size_t begin = 0;
  for (const Run& run : runs_) {
    pieces.push_back({bytes_.substr(begin, run.end - begin), run.origin});
    begin = run.end;
  }
  return pieces;
}

}  // namespace tidepool::engine::jinja
