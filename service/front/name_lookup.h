// NameLookup: from a host's name to the addresses that it stands for now.
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

  // IP addresses, each once, in no order that means anything; at least one. UNAVAILABLE says why
  // there are none.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // `done` is called on the loop, later, and perhaps after this has gone.
  virtual void Lookup(const std::string& host, Done done) = 0;
};

// By the system's resolver: its hosts file, then DNS. Asks on a thread of its own, since an answer
// can take seconds; destruction waits for it. The loop outlives this.
std::unique_ptr<NameLookup> MakeSystemLookup(Executor* loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAME_LOOKUP_H_
