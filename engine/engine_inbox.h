// EngineInbox: what the step thread shares with callers. Streams hold it too, so that one that
// outlives its engine finds solid ground.
#ifndef TIDEPOOL_ENGINE_ENGINE_INBOX_H_
#define TIDEPOOL_ENGINE_ENGINE_INBOX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/engine_stats.h"
#include "engine/scheduler/admission_slots.h"
#include "engine/scheduler/sequence.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Thread-safe.
class EngineInbox {
 public:
  // `capacity`: sequences that may run and wait.
  explicit EngineInbox(int64_t capacity) : places_("the queue", capacity), capacity_(capacity) {}

  void SetCapacity(int64_t capacity);

  // Callers. Submit takes the sequence or says why not: UNAVAILABLE, RESOURCE_EXHAUSTED.
  absl::Status Submit(std::unique_ptr<Sequence> sequence);
  // What Submit would say now to one of this principal.
  absl::Status CheckOpen(const std::string& principal) const;
  // Makes the step thread plan again.
  void Wake();
  // For the step thread to call between two steps, with OK, or with why it cannot be done any more:
  // UNAVAILABLE. RESOURCE_EXHAUSTED, UNAVAILABLE: `task` was not taken.
  using Task = std::function<void(const absl::Status& status)>;
  absl::Status Post(Task task);
  void StopAccepting();
  bool WaitIdle(absl::Duration timeout);
  // No more work: the step thread ends.
  void Stop();
  EngineStats Stats() const;
  std::vector<uint64_t> PrefixDigests() const;

  // What callers left for the step thread.
  struct Work {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Task> tasks;
  };

  // The step thread. Swaps new work into `work`, which is empty; waits up to `patience` when there
  // is none and nobody woke it. False: stop; nothing is posted any more.
  bool TakeWork(absl::Duration patience, Work* work);
  void PublishStats(const EngineStats& stats);
  void PublishPrefixes(std::vector<uint64_t> digests);
  // After a step: `count` sequences are gone, though not yet told so.
  void Retire(int64_t count);
  // All are told.
  void Delivered();

 private:
  absl::Status CheckOpenLocked(const std::string& principal) const TIDEPOOL_REQUIRES(mutex_);

  AdmissionSlots places_;
  mutable base::Mutex mutex_;
  int64_t capacity_ TIDEPOOL_GUARDED_BY(mutex_);
  base::CondVar work_;
  base::CondVar idle_;
  bool awake_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool accepting_ TIDEPOOL_GUARDED_BY(mutex_) = true;
  bool delivering_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool resting_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // the step thread waits in TakeWork
  int64_t live_ TIDEPOOL_GUARDED_BY(mutex_) = 0;      // submitted and not retired
  Work incoming_ TIDEPOOL_GUARDED_BY(mutex_);
  EngineStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<uint64_t> prefixes_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_INBOX_H_
