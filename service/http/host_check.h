// Under which names a server on this machine's own address answers.
//
// A page can give its host's name the address 127.0.0.1 after a browser has loaded it ("DNS
// rebinding"). Its requests are then of the same origin for the browser: those with GET name no
// Origin, and the page reads the response. The header Host still has the page's name.
#ifndef TIDEPOOL_SERVICE_HTTP_HOST_CHECK_H_
#define TIDEPOOL_SERVICE_HTTP_HOST_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

struct HostPolicy {
  enum class Served : uint8_t { kAll, kOfThisMachine } served = Served::kAll;
  // Those of a proxy on this machine that passes its own name on; beside those of this machine.
  std::vector<std::string> names;
};

// INVALID_ARGUMENT: not the name of a host, without a port.
absl::Status CheckHostName(absl::string_view name);

// `host` is HOST or HOST:PORT, as a request names it; empty: it names none, as no browser does.
// PERMISSION_DENIED names the remedy.
absl::Status CheckHost(absl::string_view host, const HostPolicy& policy);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HOST_CHECK_H_
