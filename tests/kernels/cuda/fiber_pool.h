// Fibers of one process thread. They are reused for many runs.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_FIBER_POOL_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_FIBER_POOL_H_

#include <functional>
#include <memory>
#include <vector>

namespace tidepool::kernels::cuda {

// Thread-compatible.
class FiberPool {
 public:
  // Each run of a fiber calls body(index of the fiber).
  explicit FiberPool(std::function<void(int)> body);
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // Starts fiber `index`, or continues it after Pause. Returns when it pauses or its run ends.
  void Resume(int index);
  // Pauses the running fiber, so that Resume returns. Only a fiber may call this.
  void Pause();
  // Gives up the run of a paused fiber. The next Resume starts a new run on a new stack. Objects on
  // the old stack are not destroyed.
  void Abandon(int index);

 private:
  struct Fiber;
  void Loop(int index);

  std::function<void(int)> body_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  // the stack of the thread that calls Resume, for ASan
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_FIBER_POOL_H_
