// FirstRequestTimes: when each chat with a request_id was first sent to this front. If the client
// repeats the request, the chat template gets the same time again. So the prompt is the same, even
// on another day.
#ifndef TIDEPOOL_SERVICE_FRONT_FIRST_REQUEST_TIMES_H_
#define TIDEPOOL_SERVICE_FRONT_FIRST_REQUEST_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/idempotency_cache.h"

namespace tidepool::service {

// Use it on the loop only.
class FirstRequestTimes {
 public:
  // The maximum number of times. More times than responses are kept, because a time needs little
  // memory: all of them together need at most 8 MiB.
  static constexpr size_t kMax = 16384;

  // `clock` must outlive this object.
  explicit FirstRequestTimes(const base::Clock* clock) : clock_(clock) {}

  // Returns nullopt if the time is unknown. `body` is RequestDigests::body.
  std::optional<absl::Time> Find(const IdempotencyCache::Name& name, const std::string& body);
  // Stores the time for the duration `ttl`. Replaces an earlier time.
  void Keep(const IdempotencyCache::Name& name, const std::string& body, absl::Time asked,
            absl::Duration ttl);

 private:
  struct Entry {
    std::string body;
    absl::Time asked;
    absl::Duration until;  // when it expires, on the monotonic clock
    int64_t number = 0;    // distinguishes this entry from a later entry with the same name
  };

  void DropOld();

  const base::Clock* clock_;
  std::map<IdempotencyCache::Name, Entry> entries_;
  // in the order in which they were added
  std::deque<std::pair<IdempotencyCache::Name, int64_t>> order_;
  int64_t next_number_ = 1;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FIRST_REQUEST_TIMES_H_
