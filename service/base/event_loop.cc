#include "service/base/event_loop.h"

namespace tidepool::service {

EventLoop::EventLoop(const base::Clock* clock) : clock_(clock), thread_([this] { Run(); }) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Post(std::function<void()> task) {
  base::MutexLock lock(&mutex_);
  if (stopping_) return;
  ready_.push_back(std::move(task));
  changed_.NotifyOne();
}

void EventLoop::PostAfter(absl::Duration delay, std::function<void()> task) {
  const absl::Duration due = clock_->Monotonic() + delay;
  base::MutexLock lock(&mutex_);
  if (stopping_) return;
  timed_.emplace(due, std::move(task));
  changed_.NotifyOne();
}

void EventLoop::Stop() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Run() {
  std::deque<std::function<void()>> batch;
  while (true) {
    {
      base::MutexLock lock(&mutex_);
      while (ready_.empty() && !stopping_) {
        if (timed_.empty()) {
          changed_.Wait(&mutex_);
          continue;
        }
        const absl::Duration left = timed_.begin()->first - clock_->Monotonic();
        if (left <= absl::ZeroDuration()) break;
        changed_.WaitFor(&mutex_, left);
      }
      if (stopping_ && ready_.empty()) return;
      batch.swap(ready_);
      const absl::Duration now = clock_->Monotonic();
      while (!timed_.empty() && timed_.begin()->first <= now) {
        batch.push_back(std::move(timed_.begin()->second));
        timed_.erase(timed_.begin());
      }
    }
    for (std::function<void()>& task : batch) {
      task();
      task = nullptr;  // destroys the task's captures before the next task runs
    }
    batch.clear();
  }
}

}  // namespace tidepool::service
