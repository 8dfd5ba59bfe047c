#include "service/http/cors_origins.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

bool IsScheme(absl::string_view text) {
  return !text.empty() && absl::ascii_isalpha(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.';
         });
}

bool IsHost(absl::string_view text) {
  if (absl::StartsWith(text, "[") && absl::EndsWith(text, "]")) {
    text = text.substr(1, text.size() - 2);
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return absl::ascii_isxdigit(c) || c == ':' || c == '.';
    });
  }
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsPort(absl::string_view text) {
  int port = 0;
  return text.size() <= 5 && absl::SimpleAtoi(text, &port) && port > 0 && port < 65536;
}

absl::string_view OwnPort(absl::string_view scheme) {
  if (scheme == "http") return "80";
  return scheme == "https" ? "443" : "";
}

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not an origin: ", why,
                   "; accepted: SCHEME://HOST, SCHEME://HOST:PORT, SCHEME://HOST:*, SCHEME://* for "
                   "schemes other than http and https, *"));
}

}  // namespace

absl::Status CorsOrigins::Parse(absl::string_view text, Origin* origin) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "null") {
    return Wrong(text, "it means every page whose origin the browser hides");
  }
  const size_t mark = lower.find("://");
  if (mark == std::string::npos) return Wrong(text, "it has no scheme");
  origin->scheme = lower.substr(0, mark);
  if (!IsScheme(origin->scheme)) return Wrong(text, "its scheme is invalid");
  const std::string rest = lower.substr(mark + 3);
  if (absl::StrContains(rest, "/")) return Wrong(text, "it has a path");
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  origin->host = rest.substr(0, colon);
  if (origin->host != "*" && !IsHost(origin->host)) return Wrong(text, "its host is invalid");
  if (origin->host == "*" && !OwnPort(origin->scheme).empty()) {
    return Wrong(text, "every host of http or https would mean every page");
  }
  if (colon == std::string::npos) return absl::OkStatus();
  origin->port = rest.substr(colon + 1);
  if (origin->port != "*" && !IsPort(origin->port)) return Wrong(text, "its port is invalid");
  if (origin->port == OwnPort(origin->scheme)) origin->port.clear();
  return absl::OkStatus();
}

absl::Status CorsOrigins::Add(absl::string_view pattern) {
  if (pattern == "*") {
    any_ = true;
    return absl::OkStatus();
  }
  Origin origin;
  absl::Status parsed = Parse(pattern, &origin);
  if (parsed.ok()) patterns_.push_back(std::move(origin));
  return parsed;
}

bool CorsOrigins::Allows(absl::string_view origin) const {
  if (origin.empty()) return false;
  if (any_) return true;
  Origin page;
  // A browser never sends "*" as an origin. Parse would accept it, as a pattern.
  if (absl::StrContains(origin, "*") || !Parse(origin, &page).ok()) return false;
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const Origin& pattern) {
    return pattern.scheme == page.scheme && (pattern.host == "*" || pattern.host == page.host) &&
           (pattern.port == "*" || pattern.port == page.port);
  });
}

}  // namespace tidepool::service
