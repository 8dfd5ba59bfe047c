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

// What the request, and the connection's state, require of the response's form. Plain data.
struct ResponseFraming {
  HttpHeaders common_headers;  // of every response to this request
  bool head_only = false;      // the request is HEAD
  bool http_1_0 = false;
  bool keep_alive = false;  // the connection serves more requests after the response
  bool chunked = false;     // the length of the body is unknown
};

// The status line and the headers, with the empty line after them. `content_length` is nullopt if
// the response has no such header.
std::string ResponseHeadText(const HttpResponse& response, const ResponseFraming& framing,
                             std::optional<int64_t> content_length, absl::Time now);

// One chunk of a chunked body. Requires: bytes is not empty.
std::string BodyChunk(absl::string_view bytes);
inline constexpr char kLastChunk[] = "0\r\n\r\n";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_RESPONSE_FRAMING_H_
