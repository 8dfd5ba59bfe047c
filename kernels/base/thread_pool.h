// A fixed set of threads that run one parallel loop at a time, for kernels.
#ifndef TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
#define TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace tidepool::base {

// Thread-compatible: one thread at a time may call ParallelFor (the engine's step thread).
class ThreadPool {
 public:
  // `threads` includes the calling thread, so 1 starts none. Requires: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Runs body(begin, end, worker) over disjoint ranges that cover [0, count), each at most `grain`
  // long. Returns when all are done. Ranges are assigned as workers become free, so the results
  // must not depend on which worker runs which range. `worker` is in [0, threads()). No two
  // concurrent bodies have the same one, so it can be an index into scratch memory.
  void ParallelFor(int64_t count, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
