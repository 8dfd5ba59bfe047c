// FirstRequestTimes: when each chat with a request_id was first sent to this front. A repeated
// request passes the same time to the chat template, so that its prompt is the same even on another
// day.
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

// Loop only.
class FirstRequestTimes {
 public:
  // Larger than the number of responses that are kept, because times are small: at most 8 MiB.
  static constexpr size_t kMax = 16384;

  // `clock` outlives this object.
  explicit FirstRequestTimes(const base::Clock* clock) : clock_(clock) {}

  // Returns nullopt if unknown. `body` is RequestDigests::body.
  std::optional<absl::Time> Find(const IdempotencyCache::Name& name, const std::string& body);
  // Keeps the time for a TTL, and replaces an earlier one.
  void Keep(const IdempotencyCache::Name& name, const std::string& body, absl::Time asked,
            absl::Duration ttl);

 private:
  struct Entry {
    std::string body;
    absl::Time asked;
    absl::Duration until;  // expiry, on the monotonic clock
    int64_t number = 0;    // distinguishes it from a later entry of the same name
  };

  void DropOld();

  const base::Clock* clock_;
  std::map<IdempotencyCache::Name, Entry> entries_;
  std::deque<std::pair<IdempotencyCache::Name, int64_t>> order_;  // in insertion order
  int64_t next_number_ = 1;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FIRST_REQUEST_TIMES_H_
