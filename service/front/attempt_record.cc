#include "service/front/attempt_record.h"

namespace tidepool::service {

void AttemptRecord::OnTokens(int64_t count) {
  tokens_ += count;
  if (proven()) failures_ = crashes_ = 0;
}

AttemptRecord::Verdict AttemptRecord::OnFailure(EndedBy by) {
  ++failures_;
  if (by == EndedBy::kCrash && !proven()) ++crashes_;
  tokens_ = 0;
  if (crashes_ >= kMaxCrashes) return Verdict::kPoisoned;
  return failures_ >= kMaxAttempts ? Verdict::kGiveUp : Verdict::kTryAgain;
}

}  // namespace tidepool::service
