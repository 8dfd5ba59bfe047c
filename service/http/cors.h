// CORS headers: they tell a browser that pages of other origins may read the responses
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
#ifndef TIDEPOOL_SERVICE_HTTP_CORS_H_
#define TIDEPOOL_SERVICE_HTTP_CORS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "service/http/cors_origins.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

// Returns whether the request is a preflight: with it, a browser asks whether a page may send the
// real request. A preflight contains no authentication token.
bool IsPreflight(const HttpHead& head);

// Returns the headers that every response to this request gets. The list is empty if no origin is
// allowed.
HttpHeaders CorsHeaders(const CorsOrigins& origins, const HttpHead& head);

// Returns the additional headers of the response to a preflight. The list is empty if the request's
// origin is not allowed. `methods` are the methods that the path supports, such as "GET, HEAD".
HttpHeaders PreflightHeaders(const CorsOrigins& origins, const HttpHead& head,
                             absl::string_view methods);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CORS_H_
