#include "service/base/active_calls.h"

#include <algorithm>

namespace tidepool::service {

absl::Status ActiveCalls::Enter() {
  base::MutexLock lock(&mutex_);
  if (closed_) {
    return absl::UnavailableError("the server is shutting down; retry on another server, or later");
  }
  ++count_;
  return absl::OkStatus();
}

void ActiveCalls::Leave() {
  base::MutexLock lock(&mutex_);
  if (--count_ == 0) changed_.NotifyAll();
}

void ActiveCalls::Close() {
  base::MutexLock lock(&mutex_);
  closed_ = true;
}

bool ActiveCalls::Drain(absl::Duration drain) {
  base::MutexLock lock(&mutex_);
  until_ = std::min(until_, clock_->Monotonic() + drain);
  changed_.NotifyAll();
  while (count_ > 0) {
    if (!WaitUntil(until_)) return false;
  }
  return true;
}

bool ActiveCalls::AwaitNone(absl::Duration most) {
  base::MutexLock lock(&mutex_);
  const absl::Duration end = clock_->Monotonic() + most;
  while (count_ > 0) {
    if (!WaitUntil(std::min(end, hurry_until_))) return false;
  }
  return true;
}

void ActiveCalls::Hurry(absl::Duration most) {
  base::MutexLock lock(&mutex_);
  hurry_until_ = clock_->Monotonic() + most;
  changed_.NotifyAll();
}

void ActiveCalls::Linger(absl::Duration grace) {
  base::MutexLock lock(&mutex_);
  const absl::Duration end = clock_->Monotonic() + grace;
  while (WaitUntil(std::min(end, until_))) {
  }
}

bool ActiveCalls::WaitUntil(absl::Duration time) {
  const absl::Duration left = time - clock_->Monotonic();
  if (left <= absl::ZeroDuration()) return false;
  // Wait at most an hour at once, because a timer cannot hold a duration of centuries.
  changed_.WaitFor(&mutex_, std::min(left, absl::Hours(1)));
  return true;
}

}  // namespace tidepool::service
