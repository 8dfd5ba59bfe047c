// RetryState: counts the failures of one request, and decides whether to try it again.
//
// Three failures in a row end a request. If an attempt has generated kProvenTokens tokens, the
// count starts again at zero. A crash of the worker is not counted here, because crash_evidence.h
// decides whether the prompt has caused it. But a broken connection looks like a crash until the
// same process responds again. After that, the broken connection is counted as a failure.
#ifndef TIDEPOOL_SERVICE_FRONT_RETRY_STATE_H_
#define TIDEPOOL_SERVICE_FRONT_RETRY_STATE_H_

#include <cstdint>
#include <vector>

#include "service/front/worker_link.h"
#include "service/front/worker_sighting.h"

namespace tidepool::service {

// Plain data.
class RetryState {
 public:
  static constexpr int kMaxAttempts = 3;
  static constexpr int64_t kProvenTokens = 8;

  // The current attempt has generated `count` more tokens.
  void OnTokens(int64_t count);
  // The attempt on this worker has failed. Requires: the worker had accepted it.
  void OnFailure(EndedBy by, const WorkerSighting& worker);
  // The attempt has ended without a failure, and the next one begins.
  void OnMoved() { tokens_ = 0; }

  // Returns whether kMaxAttempts attempts have failed. Forgets crashes of processes that are known
  // to be gone.
  bool Exhausted(const LookAtFate& look);
  // Returns the number of failures and crashes since an attempt generated kProvenTokens tokens. The
  // back-off grows with this number.
  int setbacks() const { return setbacks_; }

 private:
  int failures_ = 0;
  int setbacks_ = 0;
  std::vector<WorkerSighting> crashes_;
  int64_t tokens_ = 0;  // number of tokens of the current attempt
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_RETRY_STATE_H_
