// Authenticator: finds out who a caller is, from its token or its certificate.
#ifndef TIDEPOOL_SERVICE_AUTH_AUTHENTICATOR_H_
#define TIDEPOOL_SERVICE_AUTH_AUTHENTICATOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/auth/caller.h"

namespace tidepool::service {

// The credentials of a call.
struct Credentials {
  absl::string_view authorization;  // the Authorization header; empty: not sent
  // HTTP's X-Api-Key header, which contains only the token; empty: not sent
  absl::string_view api_key;
  // The DNS names and URIs in the client's certificate (subject alternative names). Empty unless a
  // CA of --tls-client-ca signed the certificate.
  std::vector<std::string> certificate_names;
};

// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // The error UNAUTHENTICATED says what is missing or wrong. It does not quote the credentials.
  virtual absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const = 0;

  // Admit calls this for every call that it refuses. `answer` is the status that the caller gets.
  virtual void OnRefused(const absl::Status& answer) const = 0;
};

// Returns the token in "Bearer TOKEN" (RFC 6750; the scheme is case-insensitive). UNAUTHENTICATED
// if there is no token.
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization);

// Returns the token in either of the two headers. UNAUTHENTICATED if there is none, or if the two
// tokens differ.
absl::StatusOr<absl::string_view> TokenOf(const Credentials& credentials);

// Returns the caller if it is authenticated and its role has access. Otherwise returns
// UNAUTHENTICATED or PERMISSION_DENIED. If `authenticator` is null, everyone is accepted.
absl::StatusOr<Caller> Admit(const Authenticator* authenticator, const Credentials& credentials,
                             Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_AUTHENTICATOR_H_
