// ActiveCalls: counts running calls, and refuses new calls when a server stops.
#ifndef TIDEPOOL_SERVICE_BASE_ACTIVE_CALLS_H_
#define TIDEPOOL_SERVICE_BASE_ACTIVE_CALLS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe.
class ActiveCalls {
 public:
  explicit ActiveCalls(const base::Clock* clock = &base::Clock::Real()) : clock_(clock) {}

  // If this returns OK, the call is counted until Leave. Returns UNAVAILABLE after Close.
  absl::Status Enter();
  void Leave();

  // Refuses new calls from now on.
  void Close();
  // Waits until no call is running, or until the time `drain` of this call or of another Drain call
  // has passed. Returns whether no call is running.
  bool Drain(absl::Duration drain);
  // Waits until no call is running, or until `most` has passed. Unlike Drain, this function is not
  // shortened by Drain calls. Returns whether no call is running.
  bool AwaitNone(absl::Duration most);
  // Shortens all calls of AwaitNone: from now on, they return when `most` has passed. A later call
  // of Hurry replaces this time.
  void Hurry(absl::Duration most);
  // Waits until `grace` has passed, or until the time of a Drain call has passed.
  void Linger(absl::Duration grace);

 private:
  // Waits until something changes, or until `time`. Returns false, without waiting, if `time` has
  // already passed.
  bool WaitUntil(absl::Duration time) TIDEPOOL_REQUIRES(mutex_);

  const base::Clock* clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  int64_t count_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  bool closed_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  absl::Duration until_ TIDEPOOL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  absl::Duration hurry_until_ TIDEPOOL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_ACTIVE_CALLS_H_
