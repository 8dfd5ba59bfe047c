// SingleFlight: merges requests for the same thing. Only one is in flight at a time, and all
// callers that joined it get its result.
#ifndef TIDEPOOL_ENGINE_SINGLE_FLIGHT_H_
#define TIDEPOOL_ENGINE_SINGLE_FLIGHT_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Thread-safe.
template <typename T>
class SingleFlight {
 public:
  using Done = std::function<void(absl::StatusOr<T>)>;

  // Maximum number of waiting callers. If there are more, the oldest fails, because it has probably
  // given up already.
  static constexpr size_t kMaxWaiting = 64;

  // Joins the current request. If Join returns true, the caller must make the request, and call
  // Answer once. If too many callers wait, the oldest gets RESOURCE_EXHAUSTED.
  bool Join(Done done) {
    Done oldest;
    bool first = false;
    {
      base::MutexLock lock(&mutex_);
      first = waiting_.empty();
      waiting_.push_back(std::move(done));
      if (waiting_.size() > kMaxWaiting) {
        oldest = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (oldest) {
      oldest(absl::ResourceExhaustedError(absl::StrCat(
          kMaxWaiting, " calls are waiting for the current step to end; retry later")));
    }
    return first;
  }

  void Answer(const absl::StatusOr<T>& answer) {
    std::deque<Done> waiting;
    {
      base::MutexLock lock(&mutex_);
      waiting.swap(waiting_);
    }
    for (const Done& done : waiting) done(answer);
  }

 private:
  base::Mutex mutex_;
  std::deque<Done> waiting_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SINGLE_FLIGHT_H_
