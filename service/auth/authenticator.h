// Authenticator: from what a peer shows, a token or a certificate, to who it is.
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

// What a peer shows.
struct Credentials {
  absl::string_view authorization;  // the header; empty: none
  absl::string_view api_key;        // HTTP's X-Api-Key, a token by itself; empty: none
  // Subject alternative names (DNS, URI) of its certificate, which a CA of --tls-client-ca signed.
  std::vector<std::string> certificate_names;
};

// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // UNAUTHENTICATED says what is missing or wrong, and never repeats it.
  virtual absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const = 0;

  // Told of everybody whom Admit does not let in, with what he is answered.
  virtual void OnRefused(const absl::Status& answer) const = 0;
};

// The token of "Bearer TOKEN" (RFC 6750; the scheme in any case). UNAUTHENTICATED: none there.
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization);

// The token that is shown, whichever way. UNAUTHENTICATED: none, or two that differ.
absl::StatusOr<absl::string_view> TokenOf(const Credentials& credentials);

// Who calls, if he may. No authenticator (null): anybody. UNAUTHENTICATED, PERMISSION_DENIED.
absl::StatusOr<Caller> Admit(const Authenticator* authenticator, const Credentials& credentials,
                             Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_AUTHENTICATOR_H_
