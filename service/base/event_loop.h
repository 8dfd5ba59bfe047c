// EventLoop: one thread that runs posted tasks in order. State that only the loop uses needs no
// lock. Threads of gRPC and of the engine only post tasks, so they never wait for the loop.
//
//   EventLoop loop;
//   loop.Post([&] { ... });                         // as soon as earlier tasks have run
//   loop.PostAfter(absl::Seconds(3), [&] { ... });
#ifndef TIDEPOOL_SERVICE_BASE_EVENT_LOOP_H_
#define TIDEPOOL_SERVICE_BASE_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {

// The interface of EventLoop. Tests implement it to run tasks one by one. Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;
  // Tasks run one at a time, in the order in which they were posted. They must not block.
  virtual void Post(std::function<void()> task) = 0;
  virtual void PostAfter(absl::Duration delay, std::function<void()> task) = 0;
};

// Thread-safe. The thread sleeps while there is no task.
class EventLoop : public Executor {
 public:
  explicit EventLoop(const base::Clock* clock = &base::Clock::Real());
  // Calls Stop.
  ~EventLoop() override;

  void Post(std::function<void()> task) override;
  void PostAfter(absl::Duration delay, std::function<void()> task) override;

  // Runs the tasks that were posted until now, and ends the thread. Tasks with a delay that has not
  // passed, and tasks that are posted later, are dropped. Requires: not called from a task.
  void Stop();

 private:
  void Run();

  const base::Clock* clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::function<void()>> ready_ TIDEPOOL_GUARDED_BY(mutex_);
  std::multimap<absl::Duration, std::function<void()>> timed_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_EVENT_LOOP_H_
