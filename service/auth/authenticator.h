// Authenticator: identifies a caller by its token or certificate.
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
  absl::string_view authorization;  // the Authorization header; empty: none
  absl::string_view api_key;        // HTTP's X-Api-Key header, a bare token; empty: none
  // Subject alternative names (DNS, URI) of a client certificate that a CA of --tls-client-ca
  // signed.
  std::vector<std::string> certificate_names;
};

// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // UNAUTHENTICATED says what is missing or wrong, without quoting the credentials.
  virtual absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const = 0;

  // Called for every call that Admit refuses, with the status that the caller gets.
  virtual void OnRefused(const absl::Status& answer) const = 0;
};

// Returns the token of "Bearer TOKEN" (RFC 6750; the scheme is case-insensitive). UNAUTHENTICATED
// if there is none.
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization);

// Returns the token from either header. UNAUTHENTICATED if there is none, or if the two differ.
absl::StatusOr<absl::string_view> TokenOf(const Credentials& credentials);

// Returns the caller if it is authenticated. If `authenticator` is null, accepts everyone. Errors:
// UNAUTHENTICATED, PERMISSION_DENIED.
absl::StatusOr<Caller> Admit(const Authenticator* authenticator, const Credentials& credentials,
                             Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_AUTHENTICATOR_H_
