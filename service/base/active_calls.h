// ActiveCalls: how many calls run, and the door that closes when a server goes.
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

  // OK: counted until Leave. UNAVAILABLE: the door is closed.
  absl::Status Enter();
  void Leave();

  // From now on Enter fails.
  void Close();
  // Returns when no call runs, or when `drain` of this or any other Drain call has passed: whether
  // none runs then.
  bool Drain(absl::Duration drain);
  // Returns when no call runs, or when `most` has passed, which no Drain shortens: whether none
  // runs then.
  bool AwaitNone(absl::Duration most);
  // Any AwaitNone returns when `most` of the last call of this has passed.
  void Hurry(absl::Duration most);
  // Returns when `grace` has passed, or the time of any Drain call.
  void Linger(absl::Duration grace);

 private:
  // Waits until then, or for a change. False: that time has come.
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
