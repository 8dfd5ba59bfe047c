#include "service/http/request_head.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/utf8.h"
#include "service/http/request_path.h"

namespace tidepool::service {
namespace {

namespace http = boost::beast::http;

// Returns the values of all headers with this name, joined by commas. This has the same meaning as
// one header with all values (RFC 9110, 5.3).
std::string JoinedField(const http::fields& header, const char* name) {
  std::string joined;
  const auto [begin, end] = header.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    absl::StrAppend(&joined, joined.empty() ? "" : ",",
                    absl::string_view(field->value().data(), field->value().size()));
  }
  return joined;
}

}  // namespace

HttpHead HeadOf(const BeastRequestHeader& header) {
  const auto field = [&header](auto name) {
    const auto value = header[name];
    return std::string(value.data(), value.size());
  };
  const absl::string_view target(header.target().data(), header.target().size());
  HttpHead head;
  head.method = std::string(header.method_string().data(), header.method_string().size());
  head.path = PathOf(target);
  head.host = HostOf(target, field(http::field::host));
  head.content_type = field(http::field::content_type);
  head.content_encoding = JoinedField(header, "Content-Encoding");
  head.authorization = field(http::field::authorization);
  head.api_key = field("X-Api-Key");
  head.origin = field(http::field::origin);
  head.request_method = field(http::field::access_control_request_method);
  head.request_headers = JoinedField(header, "Access-Control-Request-Headers");
  head.private_network = field("Access-Control-Request-Private-Network");
  head.traceparent = JoinedField(header, "traceparent");
  head.tracestate = JoinedField(header, "tracestate");
  head.idempotency_key = field("Idempotency-Key");
  head.request_id = field("X-Request-Id");
  head.last_event_id = field("Last-Event-ID");
  return head;
}

std::optional<HeaderFault> FaultOf(const BeastRequestHeader& header, const HttpHead& head) {
  const auto bad = [](std::string message) { return HeaderFault{.message = std::move(message)}; };
  if (header.version() != 10 && header.version() != 11) {
    return bad("this port serves only HTTP/1.1 (gRPC is at another port)");
  }
  if (header.version() == 11 && header.count(http::field::host) != 1) {
    return bad("an HTTP/1.1 request must have exactly one Host header");
  }
  // If one of these headers appears twice, a proxy may have checked a different value than the one
  // that we would use.
  for (const char* name : {"Authorization", "X-Api-Key", "Origin", "Idempotency-Key",
                           "X-Request-Id", "Last-Event-ID"}) {
    if (header.count(name) > 1) {
      return bad(absl::StrCat("a request may have only one ", name, " header"));
    }
  }
  // With another transfer coding, we would not find the end of the body (RFC 9112, 6.1).
  const std::string coding = JoinedField(header, "Transfer-Encoding");
  if (header.count("Transfer-Encoding") > 0 && !absl::EqualsIgnoreCase(coding, "chunked")) {
    return HeaderFault{.status = 501,
                       .message = absl::StrCat("Transfer-Encoding is ", base::Quoted(coding),
                                               "; only chunked is supported")};
  }
  if (!absl::StartsWith(head.path, "/")) return bad("the request's target is not a path");
  return std::nullopt;
}

}  // namespace tidepool::service
