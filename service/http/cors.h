// CORS headers, which let pages of other origins read responses
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
#ifndef TIDEPOOL_SERVICE_HTTP_CORS_H_
#define TIDEPOOL_SERVICE_HTTP_CORS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "service/http/cors_origins.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

// True if a browser asks whether its page may send a request. Such a request has no token.
bool IsPreflight(const HttpHead& head);

// Headers of every response to this request. None if no origin is allowed at all.
HttpHeaders CorsHeaders(const CorsOrigins& origins, const HttpHead& head);

// Additional headers of the response to a preflight, if its origin is allowed. `methods` are the
// ones of the path, such as "GET, HEAD".
HttpHeaders PreflightHeaders(const CorsOrigins& origins, const HttpHead& head,
                             absl::string_view methods);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CORS_H_
