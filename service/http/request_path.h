// Finds the path and the host of a request (RFC 9112, section 3.2).
#ifndef TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_
#define TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// Returns the path without the query, with valid percent escapes decoded.
std::string PathOf(absl::string_view target);

// Returns the host of a request with its port. It is taken from the request's target, or, if the
// target has no host, from the Host header (RFC 9112, section 3.2.2).
std::string HostOf(absl::string_view target, absl::string_view header);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_
