// StoreHealth: knows whether a session store can be written, and tells a listener when this
// changes.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_HEALTH_H_
#define TIDEPOOL_SERVICE_STORE_STORE_HEALTH_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe.
class StoreHealth {
 public:
  using Listener = std::function<void(const absl::Status&)>;

  // Calls the listener now, and each time the status changes. The listener is called with a lock
  // held, so it must not block and must not call this object. Listen(nullptr) removes the listener.
  // When Listen has returned, no call of an earlier listener is running.
  void Listen(Listener listener) {
    base::MutexLock lock(&mutex_);
    listener_ = std::move(listener);
    if (listener_) listener_(status_);
  }

  // Sets the status. Returns true if the status code has changed. If only the message is new,
  // nothing changes.
  bool Set(const absl::Status& status) {
    base::MutexLock lock(&mutex_);
    if (status.code() == status_.code()) return false;
    status_ = status;
    if (listener_) listener_(status_);
    return true;
  }

 private:
  base::Mutex mutex_;
  absl::Status status_ TIDEPOOL_GUARDED_BY(mutex_);
  Listener listener_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_HEALTH_H_
