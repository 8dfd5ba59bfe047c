// ManualExecutor: an Executor whose tasks run only when a test calls a function.
#ifndef TIDEPOOL_TESTS_SERVICE_BASE_MANUAL_EXECUTOR_H_
#define TIDEPOOL_TESTS_SERVICE_BASE_MANUAL_EXECUTOR_H_

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "kernels/base/mutex.h"
#include "service/base/event_loop.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {

// Posting is thread-safe. Tasks run only on the thread of the test.
class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(fakes::ManualClock* clock) : clock_(clock) {}

  void Post(std::function<void()> task) override {
    base::MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }
  void PostAfter(absl::Duration delay, std::function<void()> task) override {
    base::MutexLock lock(&mutex_);
    timed_.emplace(clock_->Monotonic() + delay, std::move(task));
  }

  // Runs all tasks, including those that tasks post.
  void RunAll() {
    while (RunOne()) {
    }
  }

  // Runs tasks until `done` returns true. If there is no task, waits until another thread posts
  // one.
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) {
      if (RunOne()) continue;
      base::MutexLock lock(&mutex_);
      while (tasks_.empty()) changed_.Wait(&mutex_);
    }
  }

  // Advances the time. Runs the timers whose time has come, in order.
  void Advance(absl::Duration time) {
    clock_->Advance(time);
    RunAll();
    while (true) {
      std::function<void()> task;
      {
        base::MutexLock lock(&mutex_);
        if (timed_.empty() || timed_.begin()->first > clock_->Monotonic()) return;
        task = std::move(timed_.begin()->second);
        timed_.erase(timed_.begin());
      }
      task();
      RunAll();
    }
  }

 private:
  bool RunOne() {
    std::function<void()> task;
    {
      base::MutexLock lock(&mutex_);
      if (tasks_.empty()) return false;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    return true;
  }

  fakes::ManualClock* clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::function<void()>> tasks_ TIDEPOOL_GUARDED_BY(mutex_);
  std::multimap<absl::Duration, std::function<void()>> timed_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_BASE_MANUAL_EXECUTOR_H_
