// EventLoop: one thread that runs posted tasks in order. State that only the loop uses needs no
// lock, and gRPC's and the engine's threads never wait for it.
//
//   EventLoop loop;
//   loop.Post([&] { ... });                         // soon, in order of posting
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

// Thread-safe. The interface of EventLoop, so that tests can run tasks by hand.
class Executor {
 public:
  virtual ~Executor() = default;
  // Tasks run one at a time, in the order of posting, and must not block.
  virtual void Post(std::function<void()> task) = 0;
  virtual void PostAfter(absl::Duration delay, std::function<void()> task) = 0;
};

// Thread-safe. Sleeps while there is nothing to do.
class EventLoop : public Executor {
 public:
  explicit EventLoop(const base::Clock* clock = &base::Clock::Real());
  // Same as Stop.
  ~EventLoop() override;

  void Post(std::function<void()> task) override;
  void PostAfter(absl::Duration delay, std::function<void()> task) override;

  // Runs the tasks posted so far, drops delayed and later tasks, and ends the thread. Requires: not
  // called from a task.
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
