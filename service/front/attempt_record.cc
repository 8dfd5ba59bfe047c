#include "service/front/attempt_record.h"

#include <algorithm>

namespace tidepool::service {

void AttemptRecord::OnTokens(int64_t count) {
  tokens_ += count;
  if (!proven()) return;
  failures_ = 0;
  crashes_.clear();
}

void AttemptRecord::OnFailure(EndedBy by, const WorkerSighting& worker) {
  ++failures_;
  if (by == EndedBy::kCrash && !proven()) crashes_.push_back(worker);
  tokens_ = 0;
}

AttemptRecord::Verdict AttemptRecord::Review(const Look& look) {
  std::erase_if(crashes_, [&](const WorkerSighting& worker) { return look(worker) == Fate::kLives; });
  return Now();
}

bool AttemptRecord::open(const Look& look) const {
  return Now() == Verdict::kPoisoned &&
         std::any_of(crashes_.begin(), crashes_.end(),
                     [&](const WorkerSighting& worker) { return look(worker) == Fate::kOpen; });
}

AttemptRecord::Verdict AttemptRecord::Now() const {
  if (crashes_.size() >= kMaxCrashes) return Verdict::kPoisoned;
  return failures_ >= kMaxAttempts ? Verdict::kGiveUp : Verdict::kTryAgain;
}

}  // namespace tidepool::service
