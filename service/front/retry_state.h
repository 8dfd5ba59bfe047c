// RetryState: how often one request has failed at its workers, and whether to try it again.
//
// Three failures in a row end a request; kProvenTokens more tokens from one attempt reset the
// count. A crash of the worker does not count here: crash_evidence.h decides whether the prompt
// caused it. A broken connection looks like a crash until the same process responds again; then it
// counts.
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

  // The running attempt generated `count` more tokens.
  void OnTokens(int64_t count);
  // The attempt failed at this worker. Requires: the worker had accepted it.
  void OnFailure(EndedBy by, const WorkerSighting& worker);
  // The attempt ended without a failure, and the next one begins.
  void OnMoved() { tokens_ = 0; }

  // Returns true if kMaxAttempts attempts failed. Forgets crashes whose process is gone.
  bool Exhausted(const LookAtFate& look);
  // Number of failures and crashes since an attempt generated kProvenTokens tokens. Back-off grows
  // with it.
  int setbacks() const { return setbacks_; }

 private:
  int failures_ = 0;
  int setbacks_ = 0;
  std::vector<WorkerSighting> crashes_;
  int64_t tokens_ = 0;  // of the running attempt
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_RETRY_STATE_H_
