// The path of a request's target (RFC 9112, section 3.2).
#ifndef TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_
#define TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// Without the query, and with its percent escapes undone where they are right.
std::string PathOf(absl::string_view target);

// The host of a request: that of its target where the target names one, else the header's (RFC
// 9112, section 3.2.2). With its port, as it came.
std::string HostOf(absl::string_view target, absl::string_view header);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_PATH_H_
