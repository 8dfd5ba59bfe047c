#include "engine/sampling/stop_matcher.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Returns the length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t PrefixAtEnd(absl::string_view text, absl::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (absl::EndsWith(text, stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, StopText stop_text)
    : stops_(std::move(stops)), stop_text_(stop_text) {
  for (const std::string& stop : stops_) CHECK(!stop.empty());
}

StopMatcher::Result StopMatcher::Append(absl::string_view text) {
  held_.append(text.data(), text.size());
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos || found + stop.size() > end) continue;
    if (found + stop.size() == end && found > begin) continue;
    begin = found;
    end = found + stop.size();
  }
  if (end != std::string::npos) {
    held_.resize(stop_text_ == StopText::kKeep ? end : begin);
    return {TakeHeld(), true};
  }
  size_t undecided = 0;
  for (const std::string& stop : stops_) undecided = std::max(undecided, PrefixAtEnd(held_, stop));
  Result result{held_.substr(0, held_.size() - undecided), false};
  held_.erase(0, held_.size() - undecided);
  return result;
}

std::string StopMatcher::TakeHeld() { return std::exchange(held_, {}); }

}  // namespace tidepool::engine
