#include "service/task_pool.h"

#include <utility>

namespace tidepool::service {

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::Post(std::function<void()> task) {
  base::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
}

void TaskPool::Run() {
  while (true) {
    std::function<void()> task;
    {
      base::MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tidepool::service
