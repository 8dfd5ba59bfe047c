// Decides which web pages may call a server without authentication.
//
// The check prevents DNS rebinding. In this attack, a browser loads a page, and then the owner of
// the page's domain changes the domain's address to 127.0.0.1. The page can then call a server on
// the user's machine as if that were the page's own server. Browsers name the page in the Origin
// header (https://fetch.spec.whatwg.org/#origin-header). Other clients send no such header.
#ifndef TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
#define TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Pages : uint8_t { kOfThisMachine, kAny };

// `origin` is the value of the Origin header, or empty. If `pages` is kOfThisMachine, the result is
// PERMISSION_DENIED for a page of another host, and for a page whose origin the browser hides
// ("null").
absl::Status CheckOrigin(absl::string_view origin, Pages pages);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
