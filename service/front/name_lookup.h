// NameLookup: finds the current addresses of a host name.
#ifndef TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_
#define TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/base/event_loop.h"

namespace tidepool::service {

// Use it on the loop only.
class NameLookup {
 public:
  virtual ~NameLookup() = default;

  // Gets at least one IP address. The addresses are different from each other, and their order has
  // no meaning. The error UNAVAILABLE says why there are none.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // Looks the name up. Calls `done` later, on the loop, even if this object is destroyed in the
  // meantime.
  virtual void Lookup(const std::string& host, Done done) = 0;
};

// Uses the system's resolver: first the hosts file, then DNS. It runs on its own thread, because a
// lookup can take seconds. The destructor waits for a running lookup. The loop must outlive this
// object.
std::unique_ptr<NameLookup> MakeSystemLookup(Executor* loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_
