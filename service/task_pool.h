// TaskPool: a few threads for work that takes a while, such as tokenising a long text.
#ifndef TIDEPOOL_SERVICE_TASK_POOL_H_
#define TIDEPOOL_SERVICE_TASK_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe. Tasks start in the order of posting. Sleeps while there is nothing to do.
class TaskPool {
 public:
  // Requires: threads >= 1.
  explicit TaskPool(int threads);
  // Runs what was posted, then ends the threads.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  void Post(std::function<void()> task);

 private:
  void Run();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::function<void()>> tasks_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TASK_POOL_H_
