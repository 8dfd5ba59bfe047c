// ActiveCalls: counts running calls, and refuses new ones when a server stops.
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

  // OK: the call is counted until Leave. UNAVAILABLE after Close.
  absl::Status Enter();
  void Leave();

  // Makes Enter fail from now on.
  void Close();
  // Returns when no call runs, or when the `drain` time of this or another Drain call has passed.
  // Returns true if no call runs then.
  bool Drain(absl::Duration drain);
  // Returns when no call runs, or when `most` has passed. A Drain call does not shorten it. Returns
  // true if no call runs then.
  bool AwaitNone(absl::Duration most);
  // Any AwaitNone returns when `most` of the last call of this has passed.
  void Hurry(absl::Duration most);
  // Returns when `grace` has passed, or the time of any Drain call.
  void Linger(absl::Duration grace);

 private:
  // Waits for a change or until `time`. Returns false if `time` has come.
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
