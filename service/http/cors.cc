#include "service/http/cors.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tidepool::service {
namespace {

// The headers that the endpoints read. They must be listed, because "*" does not include
// Authorization.
constexpr absl::string_view kRequestHeaders[] = {"Authorization",   "Content-Type", "X-Api-Key",
                                                 "Idempotency-Key", "X-Request-Id", "Last-Event-ID",
                                                 "Traceparent",     "Tracestate"};
constexpr char kResponseHeaders[] = "X-Request-Id, Retry-After, WWW-Authenticate";
// Two hours, the longest time that browsers cache a preflight.
constexpr char kMaxAgeSeconds[] = "7200";

// Returns whether `text` is a token, by the grammar of RFC 9110, 5.6.2.
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
  });
}

// Returns the headers that a page may send. All headers that it asks for are added, because unknown
// headers are harmless here. For example, OpenAI's clients send X-Stainless-... headers.
std::string AllowedHeaders(const HttpHead& head) {
  std::vector<absl::string_view> allowed(std::begin(kRequestHeaders), std::end(kRequestHeaders));
  for (absl::string_view name : absl::StrSplit(head.request_headers, ',')) {
    name = absl::StripAsciiWhitespace(name);
    const bool known = std::any_of(
        std::begin(kRequestHeaders), std::end(kRequestHeaders),
        [name](absl::string_view other) { return absl::EqualsIgnoreCase(name, other); });
    if (IsToken(name) && !known) allowed.push_back(name);
  }
  return absl::StrJoin(allowed, ", ");
}

}  // namespace

bool IsPreflight(const HttpHead& head) {
  return head.method == "OPTIONS" && !head.origin.empty() && !head.request_method.empty();
}

HttpHeaders CorsHeaders(const CorsOrigins& origins, const HttpHead& head) {
  if (origins.empty()) return {};
  // Responses depend on the origin. So a cache must not return a response to a page of another
  // origin.
  HttpHeaders headers = {{"Vary", "Origin"}};
  if (origins.Allows(head.origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", head.origin);
    headers.emplace_back("Access-Control-Expose-Headers", kResponseHeaders);
  }
  return headers;
}

HttpHeaders PreflightHeaders(const CorsOrigins& origins, const HttpHead& head,
                             absl::string_view methods) {
  if (!origins.Allows(head.origin)) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Methods", std::string(methods)},
                         {"Access-Control-Allow-Headers", AllowedHeaders(head)},
                         {"Access-Control-Max-Age", kMaxAgeSeconds}};
  // Chrome requires this header before a page from the public internet may call a private address
  // (https://wicg.github.io/private-network-access/).
  if (head.private_network == "true") {
    headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return headers;
}

}  // namespace tidepool::service
