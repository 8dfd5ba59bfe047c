// Checks the Host header of requests to a loopback address.
//
// The check prevents DNS rebinding: after a browser has loaded a page, the page's owner can change
// its host name to the address 127.0.0.1. Then the browser treats requests to this server as
// same-origin. GET requests have no Origin header, and the page can read the response. But the Host
// header still has the page's name.
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
  // More host names to accept, besides local ones, such as the names that a proxy on this machine
  // forwards.
  std::vector<std::string> names;
};

// INVALID_ARGUMENT if `name` is not a host name without a port.
absl::Status CheckHostName(absl::string_view name);

// `host` is the request's HOST or HOST:PORT. It may be empty, which no browser sends.
// PERMISSION_DENIED names the remedy.
absl::Status CheckHost(absl::string_view host, const HostPolicy& policy);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HOST_CHECK_H_
