// AttemptRecord: how one request fares at its workers, and whether it may be tried again.
//
// Failures count until an attempt has made kProvenTokens tokens more: so a long answer outlives
// workers that fall silent or are cut off all day. A crash counts for longer, because a prompt can
// crash whoever computes it in the middle of its answer, too: two in a row at one place are the
// prompt's, and so are kMostCrashes wherever they were. They are at one place when the later one
// comes less than kProvenTokens tokens behind the earlier; what a worker made right before it died
// may be lost. A crash whose process answers again was none: only the way to it broke.
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
  // Of one request, wherever they were. Workers that are stopped do not crash, they drain: eight that
  // die under one answer are more than chance, and a prompt that crashes every ninth token ends.
  static constexpr size_t kMostCrashes = 8;

  enum class Verdict : uint8_t {
    kTryAgain,
    kGiveUp,    // kMaxAttempts have failed
    kPoisoned,  // kMaxCrashes at one place, or kMostCrashes, with their workers
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

  // The prompt may be what crashed the latest worker that crashed: no attempt has got past that
  // place yet.
  bool suspect() const { return !crashes_.empty() && IsAt(crashes_.back(), made_); }
  size_t crashes() const { return crashes_.size(); }
  // Since an attempt made kProvenTokens tokens, that one included.
  int failures() const { return failures_; }

 private:
  struct Crash {
    WorkerSighting worker;
    int64_t place = 0;  // tokens that all attempts had made
  };
  static bool IsAt(const Crash& crash, int64_t place) {
    return place - crash.place < kProvenTokens;
  }
  Verdict Now() const;

  int failures_ = 0;
  std::vector<Crash> crashes_;
  int64_t made_ = 0;    // tokens, of all attempts
  int64_t tokens_ = 0;  // of the attempt that runs
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ATTEMPT_RECORD_H_
