// StoreHealth: whether a session store is writable, with listeners for changes.
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

  // Calls the listener now and at each change. The listener runs with a lock held, so it must not
  // block or call this object. Listen(nullptr) removes it: no call runs after the return.
  void Listen(Listener listener) {
    base::MutexLock lock(&mutex_);
    listener_ = std::move(listener);
    if (listener_) listener_(status_);
  }

  // True: the status code changed. A new message alone is not a change.
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
