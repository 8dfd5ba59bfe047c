#include "service/auth/authenticator.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (authorization.empty()) {
    return absl::UnauthenticatedError(
        "a token is missing: send the header authorization: Bearer TOKEN");
  }
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return absl::UnauthenticatedError(
        "the header authorization does not have the form Bearer TOKEN");
  }
  return absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
}

absl::StatusOr<absl::string_view> TokenOf(const Credentials& credentials) {
  const absl::string_view key = absl::StripAsciiWhitespace(credentials.api_key);
  if (key.empty()) return BearerToken(credentials.authorization);
  // With an API key, an Authorization header of another scheme is ignored, because it may be for a
  // proxy.
  const absl::StatusOr<absl::string_view> token = BearerToken(credentials.authorization);
  if (!token.ok() || *token == key) return key;
  return absl::UnauthenticatedError(
      "the headers authorization and x-api-key have different tokens; send one of them");
}

absl::StatusOr<Caller> Admit(const Authenticator* authenticator, const Credentials& credentials,
                             Access access) {
  if (authenticator == nullptr) return Caller();
  absl::StatusOr<Caller> caller = authenticator->Identify(credentials, base::Clock::Real().Now());
  const absl::Status status = caller.ok() ? CheckAccess(*caller, access) : caller.status();
  if (status.ok()) return caller;
  authenticator->OnRefused(status);
  return status;
}

}  // namespace tidepool::service
