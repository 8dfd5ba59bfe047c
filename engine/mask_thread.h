// MaskThread: computes the masks of constrained sequences while a forward pass runs.
//
//   masks.Begin(plan);
//   output = model->Forward(...);
//   masks.Wait(patience);
//
// If a mask takes longer than the pass, only its own sequence waits for it. The sequence gets no
// token in this step, is not planned while the mask is computed, and its rows are computed again
// later. This changes no result.
#ifndef TIDEPOOL_ENGINE_MASK_THREAD_H_
#define TIDEPOOL_ENGINE_MASK_THREAD_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/scheduler/batch_scheduler.h"
#include "engine/scheduler/constraint.h"
#include "engine/scheduler/sequence.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Engine thread only. The thread starts when there are constrained sequences for the first time.
class MaskThread {
 public:
  // `on_late` is called on the mask thread when a mask is ready that Wait did not wait for.
  explicit MaskThread(std::function<void()> on_late) : on_late_(std::move(on_late)) {}
  // Waits for the mask that is being computed, and drops the others.
  ~MaskThread();
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;

  // Starts to compute the masks of the sequences of the plan that have a constraint, get a token in
  // this step, and have no mask yet.
  void Begin(const StepPlan& plan);
  // Waits until the masks of the latest plan are ready, but at most for `patience`. Does not wait
  // if a mask of an earlier plan is still being computed.
  void Wait(absl::Duration patience);

 private:
  struct Job {
    std::shared_ptr<SequenceConstraint> constraint;
    std::vector<int32_t> forbidden;
  };

  void Run();

  const std::function<void()> on_late_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Job> jobs_ TIDEPOOL_GUARDED_BY(mutex_);  // without the one that is being computed
  size_t left_ TIDEPOOL_GUARDED_BY(mutex_) = 0;       // number of masks that are not ready
  size_t late_ TIDEPOOL_GUARDED_BY(mutex_) = 0;       // the first ones of them are not waited for
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MASK_THREAD_H_
