// Checks the Host header of requests to a loopback address.
//
// The check prevents DNS rebinding. In this attack, a browser loads a page, and then the owner of
// the page's domain changes the domain's address to 127.0.0.1. The browser now treats requests to
// this server as same-origin: GET requests have no Origin header, and the page can read the
// response. But the Host header of these requests still names the page's domain.
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
  // Host names that are accepted in addition to local ones. Example: the public name of a proxy
  // that runs on this machine and forwards the Host header.
  std::vector<std::string> names;
};

// INVALID_ARGUMENT if `name` is not a host name, or if it contains a port.
absl::Status CheckHostName(absl::string_view name);

// `host` is the request's HOST or HOST:PORT. An empty `host` is accepted, because it cannot come
// from a browser: browsers always send the header. The error PERMISSION_DENIED says how to allow
// the host.
absl::Status CheckHost(absl::string_view host, const HostPolicy& policy);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HOST_CHECK_H_
