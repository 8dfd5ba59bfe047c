// TextHandlers: handles the HTTP calls that need the tokenizer but generate nothing: /tokenize,
// /detokenize, /apply-template and /tokenizer_info.
#ifndef TIDEPOOL_SERVICE_HTTP_TEXT_HANDLERS_H_
#define TIDEPOOL_SERVICE_HTTP_TEXT_HANDLERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "service/front/front_core.h"
#include "service/http/http_authenticator.h"
#include "service/http/http_exchange.h"
#include "service/http/json.h"
#include "service/http/route_table.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-safe.
class TextHandlers {
 public:
  // Both pointers must outlive this object. `core` must also outlive the exchanges.
  TextHandlers(FrontCore* core, const HttpAuthenticator* authenticator)
      : core_(core), authenticator_(authenticator) {}

  // Adds the routes of these calls. Their handlers must not be called after this object is
  // destroyed.
  void AddTo(Routes* routes) const;

 private:
  void Tokenize(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;
  void Detokenize(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;
  void ApplyTemplate(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;
  void TokenizerInfo(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;
  // Sends `request` to the front, and converts the response to JSON with `render`.
  using TokenizeRender = Json (*)(const v1::TokenizeResponse&);
  void AskTokenizer(const HttpHead& head, absl::StatusOr<v1::TokenizeRequest> request,
                    TokenizeRender render, std::shared_ptr<HttpExchange> exchange) const;

  FrontCore* const core_;
  const HttpAuthenticator* const authenticator_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TEXT_HANDLERS_H_
