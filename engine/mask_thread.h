// MaskThread: computes the masks of constrained sequences while a forward pass runs.
//
//   masks.Begin(plan);
//   output = model->Forward(...);
//   masks.Wait();
#ifndef TIDEPOOL_ENGINE_MASK_THREAD_H_
#define TIDEPOOL_ENGINE_MASK_THREAD_H_

#include <thread>
#include <vector>

#include "engine/scheduler/batch_scheduler.h"
#include "engine/scheduler/sequence.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Engine thread only. The thread starts when there are constrained sequences for the first time.
class MaskThread {
 public:
  MaskThread() = default;
  // Requires: no masks are being computed.
  ~MaskThread();
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;

  // Starts to compute the masks of the sequences of the plan that have a constraint and get a token
  // in this step. They must not change before Wait returns.
  void Begin(const StepPlan& plan);
  void Wait();

 private:
  void Run();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Sequence*> left_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MASK_THREAD_H_
