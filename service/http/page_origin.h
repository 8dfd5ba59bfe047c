// Decides which web pages may call a server without authentication.
//
// It prevents DNS rebinding: after a browser has loaded a page, the page's owner can change its
// host name to the address 127.0.0.1, and call a server on the reader's machine as if it were the
// page's own. Browsers send the page in the Origin header
// (https://fetch.spec.whatwg.org/#origin-header). Other clients send none.
#ifndef TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
#define TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Pages : uint8_t { kOfThisMachine, kAny };

// `origin` is the header's value, or empty. PERMISSION_DENIED for a page of another host, or if the
// browser hides the origin ("null").
absl::Status CheckOrigin(absl::string_view origin, Pages pages);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
