// AttemptRecord: how one request fares at its workers, and whether it may be tried again.
//
// An attempt has proven itself when it has made kProvenTokens tokens: whatever ends it then, its
// prompt is not to blame, and counting begins anew with it. So a long answer outlives any number of
// workers, while a prompt that crashes whoever computes it is stopped at the second.
#ifndef TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_
#define TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_

#include <cstdint>

#include "service/front/worker_link.h"

namespace tidepool::service {

// Plain data.
class AttemptRecord {
 public:
  static constexpr int kMaxAttempts = 3;
  static constexpr int kMaxCrashes = 2;  // of these
  static constexpr int64_t kProvenTokens = 8;

  enum class Verdict : uint8_t {
    kTryAgain,
    kGiveUp,    // kMaxAttempts have failed
    kPoisoned,  // kMaxCrashes of them with their worker
  };

  // The attempt that runs made so many tokens more.
  void OnTokens(int64_t count);
  // It failed; the next one begins unless the verdict forbids it. Requires: a worker had taken it.
  Verdict OnFailure(EndedBy by);
  // It ended without having failed, and the next one begins.
  void OnMoved() { tokens_ = 0; }

  bool proven() const { return tokens_ >= kProvenTokens; }
  // The prompt may be what crashed a worker.
  bool suspect() const { return crashes_ > 0; }
  // Since an attempt proved itself, that one included.
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
  int crashes_ = 0;
  int64_t tokens_ = 0;  // of the attempt that runs
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_
