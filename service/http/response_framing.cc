#include "service/http/response_framing.h"

#include <boost/beast/http/status.hpp>

#include "absl/strings/str_cat.h"

namespace tidepool::service {

std::string ResponseHeadText(const HttpResponse& response, const ResponseFraming& framing,
                             std::optional<int64_t> content_length, absl::Time now) {
  namespace http = boost::beast::http;
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string text = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone()),
      "\r\n");
  if (!response.content_type.empty()) {
    absl::StrAppend(&text, "Content-Type: ", response.content_type, "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  for (const auto& [name, value] : framing.common_headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (content_length.has_value()) {
    absl::StrAppend(&text, "Content-Length: ", *content_length, "\r\n");
  }
  if (framing.chunked) absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n");
  if (!framing.keep_alive) absl::StrAppend(&text, "Connection: close\r\n");
  if (framing.keep_alive && framing.http_1_0) {
    absl::StrAppend(&text, "Connection: keep-alive\r\n");
  }
  return absl::StrCat(text, "\r\n");
}

std::string BodyChunk(absl::string_view bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace tidepool::service
