#include "service/front/retry_state.h"

#include <algorithm>

namespace tidepool::service {

void RetryState::OnTokens(int64_t count) {
  tokens_ += count;
  if (tokens_ < kProvenTokens) return;
  failures_ = setbacks_ = 0;
  crashes_.clear();
}

void RetryState::OnFailure(EndedBy by, const WorkerSighting& worker) {
  ++setbacks_;
  by == EndedBy::kCrash ? crashes_.push_back(worker) : static_cast<void>(++failures_);
  tokens_ = 0;
}

bool RetryState::Exhausted(const LookAtFate& look) {
  std::erase_if(crashes_, [&](const WorkerSighting& seen) { return look(seen) == Fate::kGone; });
  const auto broken = std::count_if(crashes_.begin(), crashes_.end(),
                                    [&](const auto& seen) { return look(seen) == Fate::kLives; });
  return failures_ + broken >= kMaxAttempts;
}

}  // namespace tidepool::service
