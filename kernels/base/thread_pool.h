// A fixed set of threads that run one loop at a time, for kernels.
#ifndef TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
#define TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace tidepool::base {

// Thread-compatible: ParallelFor is called from one thread at a time (the engine's step thread).
class ThreadPool {
 public:
  // `threads` counts the calling thread: 1 starts none. Requires: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Runs body(begin, end, worker) over disjoint ranges that cover [0, count), each at most `grain`
  // long, and returns when all are done. Ranges are handed out as workers become free, so which
  // worker runs which range varies: a body must not let that reach its result.
  // `worker` is in [0, threads()): no two concurrent bodies share one, so it can index scratch.
  void ParallelFor(int64_t count, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
