// TaskPool: a few threads for slow work, such as tokenising a long text. Each user of the pool has
// its own queue. The queues take turns: after a task of one queue, each other queue may start one
// task before the first queue is served again.
#ifndef TIDEPOOL_SERVICE_BASE_TASK_POOL_H_
#define TIDEPOOL_SERVICE_BASE_TASK_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe. The tasks of one queue start in the order in which they were posted. Callers must
// limit the length of their queues. The threads sleep while there is no task.
class TaskPool {
 public:
  // kBackground: see LowerThreadPriority and BackgroundTask.
  enum class Priority : uint8_t { kNormal, kBackground };

  // Requires: threads >= 1.
  explicit TaskPool(int threads, Priority priority = Priority::kNormal);
  // Runs all tasks that were posted, and then ends the threads.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // `line` is the name of the queue. Usually it is the principal.
  void Post(const std::string& line, std::function<void()> task);

 private:
  using Task = std::function<void()>;

  void Run(Priority priority);
  // Removes and returns a task of the queue whose turn it is. Requires: a task is waiting.
  Task TakeNext() TIDEPOOL_REQUIRES(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  // no queue in it is empty
  std::map<std::string, std::deque<Task>> lines_ TIDEPOOL_GUARDED_BY(mutex_);
  std::deque<std::string> turns_
      TIDEPOOL_GUARDED_BY(mutex_);  // the keys of lines_, in the order of their turns
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TASK_POOL_H_
