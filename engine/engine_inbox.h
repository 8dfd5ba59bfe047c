// EngineInbox: state that the step thread shares with callers. Streams share its ownership, so they
// may outlive the engine.
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
  // `capacity`: maximum number of sequences that run or wait.
  explicit EngineInbox(int64_t capacity) : places_("the queue", capacity), capacity_(capacity) {}

  void SetCapacity(int64_t capacity);

  // For callers. Submit takes the sequence or returns why not: UNAVAILABLE, RESOURCE_EXHAUSTED.
  absl::Status Submit(std::unique_ptr<Sequence> sequence);
  // What Submit would return now for this principal.
  absl::Status CheckOpen(const std::string& principal) const;
  // Wakes the step thread, so that it plans again.
  void Wake();
  // The step thread calls the task between two steps, with OK, or with UNAVAILABLE if the engine
  // stops. Post returns RESOURCE_EXHAUSTED or UNAVAILABLE if it does not accept `task`.
  using Task = std::function<void(const absl::Status& status)>;
  absl::Status Post(Task task);
  void StopAccepting();
  bool WaitIdle(absl::Duration timeout);
  // Stops the step thread. No more work is accepted.
  void Stop();
  EngineStats Stats() const;
  std::vector<uint64_t> PrefixDigests() const;

  // Work that callers left for the step thread.
  struct Work {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Task> tasks;
  };

  // For the step thread. Swaps new work into `work`, which must be empty. Without new work or a
  // wake-up, waits up to `patience`. Returns false if the engine stops; then no more tasks are
  // accepted.
  bool TakeWork(absl::Duration patience, Work* work);
  void PublishStats(const EngineStats& stats);
  void PublishPrefixes(std::vector<uint64_t> digests);
  // After a step: `count` sequences have ended, but their callers do not know yet.
  void Retire(int64_t count);
  // All results were delivered to callers.
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
  bool resting_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // the step thread is waiting in TakeWork
  int64_t live_ TIDEPOOL_GUARDED_BY(mutex_) = 0;      // submitted and not retired
  Work incoming_ TIDEPOOL_GUARDED_BY(mutex_);
  EngineStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<uint64_t> prefixes_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_INBOX_H_
