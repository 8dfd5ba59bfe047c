// ThreadPool: a fixed set of threads for kernels. It runs one parallel loop at a time.
#ifndef TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
#define TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace tidepool::base {

// Thread-compatible: only one thread at a time may call ParallelFor. The engine calls it on its
// step thread.
class ThreadPool {
 public:
  // `threads` includes the calling thread, so 1 starts no thread. Requires: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end, worker) for disjoint ranges that cover [0, count). Each range has at
  // most `grain` elements. Returns when all calls have ended. A free worker takes the next range,
  // so results must not depend on which worker runs which range. `worker` is in [0, threads()). Two
  // calls that run at the same time have different workers, so `worker` can be an index into
  // scratch memory.
  void ParallelFor(int64_t count, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_THREAD_POOL_H_
