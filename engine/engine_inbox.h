// EngineInbox: the state that the step thread shares with callers. Streams share the ownership of
// it, so they may outlive the engine.
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
  // `capacity` is the maximum number of sequences that run or wait.
  explicit EngineInbox(int64_t capacity) : places_("the queue", capacity), capacity_(capacity) {}

  void SetCapacity(int64_t capacity);

  // For callers. Accepts the sequence, or returns UNAVAILABLE or RESOURCE_EXHAUSTED with the
  // reason.
  absl::Status Submit(std::unique_ptr<Sequence> sequence);
  // Returns the status that Submit would return now for this principal.
  absl::Status CheckOpen(const std::string& principal) const;
  // Wakes the step thread, so that it plans another step.
  void Wake();
  // A task that the step thread calls between two steps. It is called with OK, or with UNAVAILABLE
  // if the engine stops. If Post does not accept the task, it returns RESOURCE_EXHAUSTED or
  // UNAVAILABLE.
  using Task = std::function<void(const absl::Status& status)>;
  absl::Status Post(Task task);
  void StopAccepting();
  bool WaitIdle(absl::Duration timeout);
  // Tells the step thread to stop. No more work is accepted.
  void Stop();
  EngineStats Stats() const;
  std::vector<uint64_t> PrefixDigests() const;

  // Work for the step thread, left by callers.
  struct Work {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Task> tasks;
  };

  // For the step thread. Moves new work into `work`, which must be empty. If there is no new work
  // and no wake-up, waits up to `patience`. Returns false if the engine stops. After that, no more
  // tasks are accepted.
  bool TakeWork(absl::Duration patience, Work* work);
  void PublishStats(const EngineStats& stats);
  void PublishPrefixes(std::vector<uint64_t> digests);
  // Called after a step in which `count` sequences ended. Their callers may not have the last
  // results yet.
  void Retire(int64_t count);
  // Called when the callers of ended sequences have received all results.
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
  // number of sequences that were submitted and not retired
  int64_t live_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  Work incoming_ TIDEPOOL_GUARDED_BY(mutex_);
  EngineStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<uint64_t> prefixes_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_INBOX_H_
