#include "service/base/task_pool.h"

#include <optional>
#include <utility>

#include "kernels/base/background_task.h"
#include "kernels/base/background_thread.h"

namespace tidepool::service {

TaskPool::TaskPool(int threads, Priority priority) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, priority] {
      if (priority == Priority::kBackground) base::LowerThreadPriority();
      Run(priority);
    });
  }
}

TaskPool::~TaskPool() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::Post(const std::string& line, std::function<void()> task) {
  base::MutexLock lock(&mutex_);
  std::deque<Task>& tasks = lines_[line];
  if (tasks.empty()) turns_.push_back(line);
  tasks.push_back(std::move(task));
  changed_.NotifyOne();
}

TaskPool::Task TaskPool::TakeNext() {
  const auto line = lines_.find(turns_.front());
  turns_.pop_front();
  Task task = std::move(line->second.front());
  line->second.pop_front();
  if (line->second.empty()) {
    lines_.erase(line);
  } else {
    turns_.push_back(line->first);
  }
  return task;
}

void TaskPool::Run(Priority priority) {
  while (true) {
    Task task;
    {
      base::MutexLock lock(&mutex_);
      while (turns_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (turns_.empty()) return;
      task = TakeNext();
    }
    std::optional<base::BackgroundTask> background;
    if (priority == Priority::kBackground) background.emplace();
    task();
  }
}

}  // namespace tidepool::service
