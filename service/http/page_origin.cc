#include "service/http/page_origin.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/utf8.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

// Returns whether an origin SCHEME://HOST[:PORT] is a page of this machine. Browsers omit a
// scheme's default port.
bool IsOfThisMachine(absl::string_view origin) {
  if (!absl::ConsumePrefix(&origin, "http://") && !absl::ConsumePrefix(&origin, "https://")) {
    return false;
  }
  const bool has_port = absl::StrContains(origin.substr(origin.rfind(']') + 1), ":");
  const absl::StatusOr<HostPort> parts =
      ParseHostPort(has_port ? std::string(origin) : absl::StrCat(origin, ":80"));
  return parts.ok() && IsLoopback(parts->host);
}

}  // namespace

absl::Status CheckOrigin(absl::string_view origin, Pages pages) {
  if (pages == Pages::kAny || origin.empty() || IsOfThisMachine(origin)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a page of ", base::Quoted(origin),
                   " may not call this server without authentication; start the server with "
                   "--cors-origin ORIGIN to allow this page, or with --auth-token-file FILE"));
}

}  // namespace tidepool::service
