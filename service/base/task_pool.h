// TaskPool: a few threads for slow work, such as tokenising a long text. Each user of the pool has
// its own queue, and the queues take turns. So a task waits for at most one task of each other
// queue in a round.
#ifndef TIDEPOOL_SERVICE_BASE_TASK_POOL_H_
#define TIDEPOOL_SERVICE_BASE_TASK_POOL_H_

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe. Tasks of one queue start in the order of posting. The callers must limit the length
// of the queues. Sleeps while there is nothing to do.
class TaskPool {
 public:
  // Requires: threads >= 1.
  explicit TaskPool(int threads);
  // Runs all posted tasks, then ends the threads.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // `line` names the queue, usually the principal.
  void Post(const std::string& line, std::function<void()> task);

 private:
  using Task = std::function<void()>;

  void Run();
  // Takes a task of the queue whose turn it is. Requires: a task is waiting.
  Task TakeNext() TIDEPOOL_REQUIRES(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<std::string, std::deque<Task>> lines_ TIDEPOOL_GUARDED_BY(mutex_);  // no queue is empty
  std::deque<std::string> turns_
      TIDEPOOL_GUARDED_BY(mutex_);  // keys of lines_, in the order of their turns
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TASK_POOL_H_
