// AskedTimes: when chats with a request_id were asked first, at this front. One that is made again
// tells its template the same time, so that its prompt is the same on another day, too.
#ifndef TIDEPOOL_SERVICE_FRONT_ASKED_TIMES_H_
#define TIDEPOOL_SERVICE_FRONT_ASKED_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/named_requests.h"

namespace tidepool::service {

// Loop only.
class AskedTimes {
 public:
  // More than answers are kept, for a time takes next to no room: 8 MiB of these at most.
  static constexpr size_t kMost = 16384;

  // `clock` outlives this.
  explicit AskedTimes(const base::Clock* clock) : clock_(clock) {}

  // Nothing: it is not known. `body`: RequestDigests::body.
  std::optional<absl::Time> Find(const NamedRequests::Name& name, const std::string& body);
  // For so long, in the place of what is known.
  void Keep(const NamedRequests::Name& name, const std::string& body, absl::Time asked,
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
  std::map<NamedRequests::Name, Entry> entries_;
  std::deque<std::pair<NamedRequests::Name, int64_t>> order_;  // of keeping
  int64_t next_number_ = 1;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ASKED_TIMES_H_
