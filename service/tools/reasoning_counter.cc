#include "service/tools/reasoning_counter.h"

#include <algorithm>

#include "service/tools/output_piece.h"

namespace tidepool::service {

void ReasoningCounter::Add(absl::string_view text) {
  if (text.empty()) return;
  const bool was_inside = parser_.in_reasoning();
  const int64_t changed_before = parser_.reasoning_changed_at();
  OutputPieces pieces;
  parser_.Feed(text, &pieces);
  const bool inside = parser_.in_reasoning();
  const int64_t changed_at = parser_.reasoning_changed_at();
  const int64_t begin = bytes_;
  bytes_ += static_cast<int64_t>(text.size());
  if (was_inside) open_.push_back(begin);
  if (was_inside && !inside) {
    // Only now is it known which tokens belong to the end marker. These are not counted.
    closed_ += std::lower_bound(open_.begin(), open_.end(), changed_at) - open_.begin();
    open_.clear();
  } else if (inside && changed_at != changed_before) {
    // All earlier tokens belong to the begin marker. (The model may repeat the marker if the prompt
    // ends with it.)
    open_.clear();
    if (bytes_ > changed_at) open_.push_back(begin);
  }
}

}  // namespace tidepool::service
