// The bytes of HTTP/1.1 responses (RFC 9112).
#ifndef TIDEPOOL_SERVICE_HTTP_RESPONSE_FRAMING_H_
#define TIDEPOOL_SERVICE_HTTP_RESPONSE_FRAMING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

// The form that a response must have, because of its request and of the connection's state. Plain
// data.
struct ResponseFraming {
  HttpHeaders common_headers;  // headers that every response to this request gets
  bool head_only = false;      // the request's method is HEAD, so no body is sent
  bool http_1_0 = false;
  bool keep_alive = false;  // the connection stays open for more requests
  bool chunked = false;     // the body is sent in chunks, because its length is unknown
};

// Returns the status line, the headers and the empty line after them. If `content_length` is
// nullopt, there is no Content-Length header.
std::string ResponseHeadText(const HttpResponse& response, const ResponseFraming& framing,
                             std::optional<int64_t> content_length, absl::Time now);

// Returns one chunk of a chunked body. Requires: `bytes` is not empty.
std::string BodyChunk(absl::string_view bytes);
inline constexpr char kLastChunk[] = "0\r\n\r\n";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_RESPONSE_FRAMING_H_
