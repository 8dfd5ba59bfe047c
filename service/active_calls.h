// ActiveCalls: how many calls run, and the door that closes when a server goes.
#ifndef TIDEPOOL_SERVICE_ACTIVE_CALLS_H_
#define TIDEPOOL_SERVICE_ACTIVE_CALLS_H_

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
  // Returns when no call runs, or when `drain` of this or any other Drain call has passed.
  void Drain(absl::Duration drain);

 private:
  const base::Clock* clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  int64_t count_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  bool closed_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  absl::Duration until_ TIDEPOOL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_ACTIVE_CALLS_H_
