#include "service/http/http_authenticator.h"

#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<Caller> HttpAuthenticator::CallerOf(const HttpHead& head) const {
  // With an authenticator, pages need no check, because a page can only send a token that its user
  // gave to it.
  if (authenticator_ == nullptr && !web_->cors.Allows(head.origin)) {
    RETURN_IF_ERROR(CheckOrigin(head.origin, web_->pages));
  }
  return Admit(authenticator_, {.authorization = head.authorization, .api_key = head.api_key},
               Access::kClients);
}

}  // namespace tidepool::service
