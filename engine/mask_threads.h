// MaskThreads: computes the masks of constrained sequences while a forward pass runs.
//
//   masks.Begin(plan);
//   output = model->Forward(...);
//   masks.Wait(patience);
//
// If a mask takes longer than the pass, only its own sequence waits for it. The sequence gets no
// token in this step, is not planned while the mask is computed, and its rows are computed again
// later. This changes no result.
#ifndef TIDEPOOL_ENGINE_MASK_THREADS_H_
#define TIDEPOOL_ENGINE_MASK_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/scheduler/batch_scheduler.h"
#include "engine/scheduler/constraint.h"
#include "engine/scheduler/sequence.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Engine thread only. There are two threads, which start when there are constrained sequences for
// the first time. The second thread has a low priority. It computes the masks that take the first
// thread too long, and the next mask of a sequence whose mask was slow().
class MaskThreads {
 public:
  // `on_late` is called on a mask thread when a mask is ready that Wait did not wait for.
  explicit MaskThreads(std::function<void()> on_late) : on_late_(std::move(on_late)) {}
  // Waits for the masks that are being computed, and drops the masks that were not begun.
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  // Starts to compute the masks of the sequences of the plan that have a constraint, get a token in
  // this step, and have no mask yet.
  void Begin(const StepPlan& plan);
  // Waits until the masks of the latest plan are ready, but at most for `patience`. Does not wait
  // for masks that go directly to the second thread.
  void Wait(absl::Duration patience);

 private:
  struct Job {
    std::shared_ptr<SequenceConstraint> constraint;
    std::vector<int32_t> forbidden;
    uint64_t step = 0;  // number of the plan that waits for the mask; 0: none
  };
  using Jobs = std::deque<Job>;

  // Waits for a job, and removes it. Returns nullopt if the object is being destroyed.
  std::optional<Job> Next(Jobs* jobs);
  // Computes the masks of quick_. If a mask takes long, its job moves to slow_.
  void RunQuick();
  // Computes the masks of slow_.
  void RunSlow();
  // Records that a mask is ready.
  void Finish(const Job& job);

  const std::function<void()> on_late_;
  base::Mutex mutex_;
  base::CondVar changed_;
  Jobs quick_ TIDEPOOL_GUARDED_BY(mutex_);
  Jobs slow_ TIDEPOOL_GUARDED_BY(mutex_);
  uint64_t step_ TIDEPOOL_GUARDED_BY(mutex_) = 0;  // the number of the latest plan
  // number of masks of the latest plan that Wait waits for, or will wait for
  size_t left_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MASK_THREADS_H_
