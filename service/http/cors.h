// Headers by which browsers let a page read what another host answers it
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
#ifndef TIDEPOOL_SERVICE_HTTP_CORS_H_
#define TIDEPOOL_SERVICE_HTTP_CORS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "service/http/cors_origins.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

// A browser asks whether its page may send a request. It has no token yet.
bool IsPreflight(const HttpHead& head);

// Of every response to this request; none where no origin is allowed at all.
HttpHeaders CorsHeaders(const CorsOrigins& origins, const HttpHead& head);

// Of the answer to a preflight besides, if its origin is allowed. `methods`: those of the path, as
// in "GET, HEAD".
HttpHeaders PreflightHeaders(const CorsOrigins& origins, const HttpHead& head,
                             absl::string_view methods);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CORS_H_
