// Which web pages may ask where nobody is authenticated.
//
// Whoever makes a page can give its host's name the address 127.0.0.1 once a browser has it ("DNS
// rebinding"), and ask a server of its reader's machine as if it were the page's own. Browsers name
// the page in the header Origin (https://fetch.spec.whatwg.org/#origin-header); other clients send
// none.
#ifndef TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
#define TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Pages : uint8_t { kOfThisMachine, kAny };

// `origin` is the header as it came; empty: there was none. PERMISSION_DENIED: a page of another
// host, or of one that its browser does not tell.
absl::Status CheckOrigin(absl::string_view origin, Pages pages);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_PAGE_ORIGIN_H_
