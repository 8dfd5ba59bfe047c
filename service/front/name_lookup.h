// NameLookup: resolves a host name to its current addresses.
#ifndef TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_
#define TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/base/event_loop.h"

namespace tidepool::service {

// Loop only.
class NameLookup {
 public:
  virtual ~NameLookup() = default;

  // Distinct IP addresses in arbitrary order, at least one. UNAVAILABLE says why there are none.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // `done` is called later on the loop, possibly after this object was destroyed.
  virtual void Lookup(const std::string& host, Done done) = 0;
};

// Uses the system's resolver: the hosts file, then DNS. It has its own thread, since a lookup can
// take seconds. The destructor waits for it. The loop outlives this object.
std::unique_ptr<NameLookup> MakeSystemLookup(Executor* loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_
