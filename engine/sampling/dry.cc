#include "engine/sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Returns base^exponent. Uses only IEEE operations, so it is the same on every machine.
double Power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

// Returns the largest index below `end` at which `values` has `value`, or -1.
int64_t FindBefore(absl::Span<const int32_t> values, int64_t end, int32_t value) {
  constexpr int64_t kBlock = 32;  // compared without branches, so that the compiler vectorizes it
  const int32_t* data = values.data();
  for (; end >= kBlock; end -= kBlock) {
    int32_t found = 0;
    for (int64_t i = end - kBlock; i < end; ++i) found |= data[i] == value ? 1 : 0;
    if (found != 0) break;
  }
  while (end > 0 && data[end - 1] != value) --end;
  return end - 1;
}

}  // namespace

void DryHistory::Add(int32_t token) {
  const int64_t position = size_++;
  const auto ended = [this, position](int64_t begin) {
    if (begin < begin_) return;
    begin_ = begin;
    end_ = position;
  };
  size_t kept = 0;
  for (const Match& match : matches_) {
    const int32_t node = breakers_->Next(match.node, token);
    if (node == DryBreakers::kNone) continue;
    if (breakers_->IsEnd(node)) ended(match.begin);
    matches_[kept++] = {match.begin, node};
  }
  matches_.resize(kept);
  for (const int32_t root : breakers_->Rests(token)) matches_.push_back({position, root});
  if (breakers_->IsWhole(token)) ended(position);
}

int64_t DryHistory::SinceBreaker(int64_t window) const {
  if (begin_ < 0 || begin_ < size_ - window) return window;
  return size_ - 1 - end_;
}

void DryPenalty::Apply(const SamplingParams& params, const DryHistory& history,
                       absl::Span<const int32_t> tokens, absl::Span<float> logits) {
  CHECK_EQ(history.size(), static_cast<int64_t>(tokens.size()));
  int64_t window = tokens.size();
  if (params.dry_penalty_last_n >= 0) window = std::min<int64_t>(window, params.dry_penalty_last_n);
  const int64_t allowed = params.dry_allowed_length;
  if (window <= allowed) return;
  const int64_t limit = history.SinceBreaker(window);
  if (limit < allowed) return;
  longest_.resize(std::max(longest_.size(), logits.size()));
  FindRepetitions(tokens.last(window), allowed, limit);
  for (const int32_t token : noted_) {
    const int64_t length = longest_[token] - 1;
    longest_[token] = 0;
    float& logit = logits[token];
    if (history.breakers().IsWhole(token) || !std::isfinite(logit)) continue;
    const double lowered = logit - static_cast<double>(params.dry_multiplier) *
                                       Power(params.dry_base, length - allowed);
    // A finite logit stays finite.
    logit = static_cast<float>(std::max<double>(lowered, std::numeric_limits<float>::lowest()));
  }
  noted_.clear();
}

void DryPenalty::Note(int32_t next_token, int64_t length) {
  if (static_cast<size_t>(next_token) >= longest_.size()) return;
  int32_t& longest = longest_[next_token];
  if (longest == 0) noted_.push_back(next_token);
  longest = std::max(longest, static_cast<int32_t>(length + 1));
}

// Records each token that would continue a repetition of at least `allowed` tokens. Repetitions
// have at most `limit` tokens. This is the Z-algorithm on the reversed tokens. lengths_[d] is the
// number of reversed tokens from `d` on that equal the first reversed tokens. The reversed tokens
// in [left, right] equal the first right - left + 1 reversed tokens, so lengths in this range
// follow from earlier lengths. `right` only increases, so each token is compared once.
void DryPenalty::FindRepetitions(absl::Span<const int32_t> tokens, int64_t allowed, int64_t limit) {
  const int64_t size = tokens.size();
  const auto at = [&tokens, size](int64_t distance) { return tokens[size - 1 - distance]; };
  lengths_.assign(std::min(limit, size), 0);
  int64_t left = 0;
  int64_t right = 0;
  for (int64_t d = 1; d < size; ++d) {
    if (d > right && allowed > 0) {
      // Without an equal token there is no repetition, so go to the next equal token.
      d = size - 1 - FindBefore(tokens, size - d, tokens.back());
      if (d >= size) break;
    }
    int64_t length = d <= right ? std::min<int64_t>(lengths_[d - left], right - d + 1) : 0;
    if (d + length > right) {
      while (length < limit && d + length < size && at(length) == at(d + length)) ++length;
      if (length > 0) {
        left = d;
        right = d + length - 1;
      }
    }
    if (d < static_cast<int64_t>(lengths_.size())) lengths_[d] = static_cast<int32_t>(length);
    if (length >= allowed) Note(at(d - 1), length);
  }
}

}  // namespace tidepool::engine
