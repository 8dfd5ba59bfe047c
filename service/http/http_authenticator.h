// HttpAuthenticator: finds out who sent an HTTP request.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_AUTHENTICATOR_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_AUTHENTICATOR_H_

#include "absl/status/statusor.h"
#include "service/auth/authenticator.h"
#include "service/auth/caller.h"
#include "service/http/http_exchange.h"
#include "service/http/web_access.h"

namespace tidepool::service {

// Thread-safe.
class HttpAuthenticator {
 public:
  // Both pointers must outlive this object. If `authenticator` is null, everyone may send requests,
  // except web pages that `web` does not allow.
  HttpAuthenticator(const Authenticator* authenticator, const WebAccess* web)
      : authenticator_(authenticator), web_(web) {}

  // Returns an error if the request's token, or the web page that sent the request, is not
  // accepted.
  absl::StatusOr<Caller> CallerOf(const HttpHead& head) const;

 private:
  const Authenticator* const authenticator_;
  const WebAccess* const web_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_AUTHENTICATOR_H_
