#include "service/front/attempt_record.h"

#include <algorithm>

namespace tidepool::service {

void AttemptRecord::OnTokens(int64_t count) {
  made_ += count;
  tokens_ += count;
  if (tokens_ >= kProvenTokens) failures_ = 0;
}

void AttemptRecord::OnFailure(EndedBy by, const WorkerSighting& worker) {
  ++failures_;
  if (by == EndedBy::kCrash) crashes_.push_back({.worker = worker, .place = made_});
  tokens_ = 0;
}

AttemptRecord::Verdict AttemptRecord::Review(const Look& look) {
  std::erase_if(crashes_,
                [&](const Crash& crash) { return look(crash.worker) == Fate::kLives; });
  return Now();
}

bool AttemptRecord::open(const Look& look) const {
  return Now() == Verdict::kPoisoned &&
         std::any_of(crashes_.begin(), crashes_.end(),
                     [&](const Crash& crash) { return look(crash.worker) == Fate::kOpen; });
}

AttemptRecord::Verdict AttemptRecord::Now() const {
  static_assert(kMaxCrashes == 2);
  const size_t count = crashes_.size();
  if (count >= kMostCrashes) return Verdict::kPoisoned;
  if (count >= kMaxCrashes && IsAt(crashes_[count - 2], crashes_.back().place)) {
    return Verdict::kPoisoned;
  }
  return failures_ >= kMaxAttempts ? Verdict::kGiveUp : Verdict::kTryAgain;
}

}  // namespace tidepool::service
