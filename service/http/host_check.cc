#include "service/http/host_check.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/utf8.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

// Returns the host of HOST[:PORT], in lower case, without brackets and without a dot at the end.
std::string NameOf(absl::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.find(':', bracket == absl::string_view::npos ? 0 : bracket);
  std::string name = absl::AsciiStrToLower(host.substr(0, colon));
  if (absl::StartsWith(name, "[") && absl::EndsWith(name, "]")) {
    return name.substr(1, name.size() - 2);
  }
  return std::string(absl::StripSuffix(name, "."));
}

}  // namespace

absl::Status CheckHostName(absl::string_view name) {
  const bool known = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not a host name; omit scheme, port and path"));
}

absl::Status CheckHost(absl::string_view host, const HostPolicy& policy) {
  if (policy.served == HostPolicy::Served::kAll || host.empty()) return absl::OkStatus();
  const std::string name = NameOf(host);
  if (IsLoopback(name) || absl::EndsWith(name, ".localhost")) return absl::OkStatus();
  const bool named =
      std::any_of(policy.names.begin(), policy.names.end(), [&](const std::string& allowed) {
        return absl::EqualsIgnoreCase(absl::StripSuffix(allowed, "."), name);
      });
  if (named) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the request is for host ", base::Quoted(host),
      ", but this address serves only localhost, 127.0.0.1 and [::1]; use one of these, or "
      "start the server with --http-host NAME to allow the name of a proxy"));
}

}  // namespace tidepool::service
