// Mutex: std::mutex with Clang's thread-safety annotations. Our code does not use Abseil's Mutex,
// because Debian's build of Abseil causes false race reports under TSan.
//
//   base::Mutex mutex_;
//   int jobs_ TIDEPOOL_GUARDED_BY(mutex_);
//   base::MutexLock lock(&mutex_);
#ifndef TIDEPOOL_KERNELS_BASE_MUTEX_H_
#define TIDEPOOL_KERNELS_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

#if defined(__clang__)
#define TIDEPOOL_ANNOTATION_(x) __attribute__((x))
#else
#define TIDEPOOL_ANNOTATION_(x)
#endif
#define TIDEPOOL_GUARDED_BY(mutex) TIDEPOOL_ANNOTATION_(guarded_by(mutex))
#define TIDEPOOL_REQUIRES(mutex) TIDEPOOL_ANNOTATION_(exclusive_locks_required(mutex))
#define TIDEPOOL_EXCLUDES(mutex) TIDEPOOL_ANNOTATION_(locks_excluded(mutex))
#define TIDEPOOL_SCOPED_LOCK TIDEPOOL_ANNOTATION_(scoped_lockable)
#define TIDEPOOL_ACQUIRE(mutex) TIDEPOOL_ANNOTATION_(acquire_capability(mutex))
#define TIDEPOOL_RELEASE() TIDEPOOL_ANNOTATION_(release_capability())

namespace tidepool::base {

// Thread-safe.
class TIDEPOOL_ANNOTATION_(capability("mutex")) Mutex {
 public:
  void Lock() TIDEPOOL_ANNOTATION_(acquire_capability()) { mutex_.lock(); }
  void Unlock() TIDEPOOL_ANNOTATION_(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Locks a Mutex when created, and unlocks it when destroyed.
class TIDEPOOL_ANNOTATION_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) TIDEPOOL_ANNOTATION_(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() TIDEPOOL_ANNOTATION_(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

// Thread-safe. A thread may also wake up without a notification, so call Wait in a loop that checks
// the condition.
class CondVar {
 public:
  // Requires: the caller holds `mutex`.
  void Wait(Mutex* mutex) TIDEPOOL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false if `timeout` passed without a wake-up. Requires: the caller holds `mutex`.
  bool WaitFor(Mutex* mutex, absl::Duration timeout) TIDEPOOL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken =
        condition_.wait_for(lock, absl::ToChronoNanoseconds(timeout)) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_MUTEX_H_
