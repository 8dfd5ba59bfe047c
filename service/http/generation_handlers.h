// GenerationHandlers: handles the HTTP calls that generate text: /v1/completions and
// /v1/chat/completions.
#ifndef TIDEPOOL_SERVICE_HTTP_GENERATION_HANDLERS_H_
#define TIDEPOOL_SERVICE_HTTP_GENERATION_HANDLERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "service/http/generation_call.h"
#include "service/http/http_authenticator.h"
#include "service/http/http_exchange.h"
#include "service/http/openai_request.h"
#include "service/http/route_table.h"

namespace tidepool::service {

// Thread-safe.
class GenerationHandlers {
 public:
  // The objects in `front` and the authenticator outlive this object.
  GenerationHandlers(const HttpFront& front, const HttpAuthenticator* authenticator)
      : front_(front), authenticator_(authenticator) {}

  // Adds the routes of these calls. Their handlers must not be called after this object is
  // destroyed.
  void AddTo(Routes* routes) const;

 private:
  void Start(const HttpHead& head, absl::StatusOr<OpenAiRequest> request,
             std::shared_ptr<HttpExchange> exchange) const;

  const HttpFront front_;
  const HttpAuthenticator* const authenticator_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_GENERATION_HANDLERS_H_
