// TaskPool: a few threads for work that takes a while, such as tokenising a long text, and a line
// of it for each of those whom it is done for: they take turns, so that nobody waits for more than
// one task of each other.
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

// Thread-safe. Tasks of one line start in the order of posting. How long lines get is for those who
// post to bound. Sleeps while there is nothing to do.
class TaskPool {
 public:
  // Requires: threads >= 1.
  explicit TaskPool(int threads);
  // Runs what was posted, then ends the threads.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // `line`: whom it is for.
  void Post(const std::string& line, std::function<void()> task);

 private:
  using Task = std::function<void()>;

  void Run();
  // Of the line whose turn it is. Requires: one waits.
  Task TakeNext() TIDEPOOL_REQUIRES(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<std::string, std::deque<Task>> lines_ TIDEPOOL_GUARDED_BY(mutex_);  // none is empty
  std::deque<std::string> turns_
      TIDEPOOL_GUARDED_BY(mutex_);  // each of lines_ once, the next first
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TASK_POOL_H_
