// FirstRequestTimes: when chats with a request_id were asked first, at this front. One that is made
// again tells its template the same time, so that its prompt is the same on another day, too.
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
  // More than answers are kept, for a time takes next to no room: 8 MiB of these at most.
  static constexpr size_t kMax = 16384;

  // `clock` outlives this.
  explicit FirstRequestTimes(const base::Clock* clock) : clock_(clock) {}

  // Nothing: it is not known. `body`: RequestDigests::body.
  std::optional<absl::Time> Find(const IdempotencyCache::Name& name, const std::string& body);
  // For so long, in the place of what is known.
  void Keep(const IdempotencyCache::Name& name, const std::string& body, absl::Time asked,
            absl::Duration ttl);

 private:
  struct Entry {
    std::string body;
    absl::Time asked;
    absl::Duration until;  // on the monotonic clock
    int64_t number = 0;    // tells it from one of the same name
  };

  void DropOld();

  const base::Clock* clock_;
  std::map<IdempotencyCache::Name, Entry> entries_;
  std::deque<std::pair<IdempotencyCache::Name, int64_t>> order_;  // of keeping
  int64_t next_number_ = 1;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FIRST_REQUEST_TIMES_H_
