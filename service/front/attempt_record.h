// AttemptRecord: how one request fares at its workers, and whether it may be tried again.
//
// An attempt has proven itself when it has made kProvenTokens tokens: whatever ends it then, its
// prompt is not to blame, and counting begins anew with it. So a long answer outlives any number of
// workers, while a prompt that crashes whoever computes it is stopped at the second. A crash whose
// process answers again was none: only the way to it broke.
#ifndef TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_
#define TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "service/front/worker_link.h"

namespace tidepool::service {

// A worker's process as it was last heard of.
struct WorkerSighting {
  const WorkerLink* link = nullptr;  // tells workers apart, which may be gone
  uint64_t process_id = 0;           // 0: not known
  int64_t watches = 0;               // streams of states that it had begun behind broken ones
  absl::Duration at;                 // of the front's monotonic clock
};

// Plain data.
class AttemptRecord {
 public:
  static constexpr int kMaxAttempts = 3;
  static constexpr size_t kMaxCrashes = 2;  // of these
  static constexpr int64_t kProvenTokens = 8;

  enum class Verdict : uint8_t {
    kTryAgain,
    kGiveUp,    // kMaxAttempts have failed
    kPoisoned,  // kMaxCrashes of them with their worker
  };

  // The attempt that runs made so many tokens more.
  void OnTokens(int64_t count);
  // It failed at this worker; the next one begins unless Review forbids it. Requires: the worker
  // had taken it.
  void OnFailure(EndedBy by, const WorkerSighting& worker);
  // What became of the process that was seen, once its call ended as by a crash.
  enum class Fate : uint8_t { kLives, kOpen, kGone };
  using Look = std::function<Fate(const WorkerSighting&)>;
  // Takes those crashes back whose process lives on; they stay failures.
  Verdict Review(const Look& look);
  // Whether the verdict is kPoisoned and may not stay so.
  bool open(const Look& look) const;
  // It ended without having failed, and the next one begins.
  void OnMoved() { tokens_ = 0; }

  bool proven() const { return tokens_ >= kProvenTokens; }
  // The prompt may be what crashed a worker.
  bool suspect() const { return !crashes_.empty(); }
  // Since an attempt proved itself, that one included.
  int failures() const { return failures_; }

 private:
  Verdict Now() const;

  int failures_ = 0;
  std::vector<WorkerSighting> crashes_;
  int64_t tokens_ = 0;  // of the attempt that runs
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_
