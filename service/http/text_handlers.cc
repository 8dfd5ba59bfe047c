#include "service/http/text_handlers.h"

#include <utility>

#include "service/http/api_response.h"
#include "service/http/http_error.h"
#include "service/http/text_api.h"

namespace tidepool::service {

void TextHandlers::AddTo(Routes* routes) const {
  const auto bound = [this](auto handle) {
    return [this, handle](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
      (this->*handle)(request, std::move(exchange));
    };
  };
  routes->push_back({{.path = "/tokenize",
                      .method = "POST",
                      .summary = "Turn a text or a conversation into tokens.",
                      .read_body = ReadBodyOf<&ParseTokenizeBody>},
                     bound(&TextHandlers::Tokenize)});
  routes->push_back({{.path = "/detokenize",
                      .method = "POST",
                      .summary = "Turn tokens into text.",
                      .read_body = ReadBodyOf<&ParseDetokenizeBody>},
                     bound(&TextHandlers::Detokenize)});
  routes->push_back({{.path = "/apply-template",
                      .method = "POST",
                      .summary = "Render a conversation with the model's chat template.",
                      .read_body = ReadBodyOf<&ParseApplyTemplateBody>},
                     bound(&TextHandlers::ApplyTemplate)});
  routes->push_back(
      {{.path = "/tokenizer_info", .method = "GET", .summary = "Describe the tokenizer."},
       bound(&TextHandlers::TokenizerInfo)});
}

void TextHandlers::AskTokenizer(const HttpHead& head, absl::StatusOr<v1::TokenizeRequest> request,
                                TokenizeRender render,
                                std::shared_ptr<HttpExchange> exchange) const {
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status()));
  const absl::StatusOr<Caller> caller = authenticator_->CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  core_->loop()->Post([core = core_, principal = caller->principal, render, exchange,
                       asked = *std::move(request)]() mutable {
    core->texts()->Tokenize(
        std::move(asked), {.principal = principal},
        [render, exchange](const absl::StatusOr<v1::TokenizeResponse>& response) {
          if (!response.ok()) {
            return AnswerLater(exchange, ErrorResponse(response.status()));
          }
          AnswerLater(exchange, JsonResponse(render(*response)));
        });
  });
}

void TextHandlers::Tokenize(const HttpRequest& request,
                            std::shared_ptr<HttpExchange> exchange) const {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  AskTokenizer(request.head, ParseTokenizeBody(*body), &TokenizeJson, std::move(exchange));
}

void TextHandlers::ApplyTemplate(const HttpRequest& request,
                                 std::shared_ptr<HttpExchange> exchange) const {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  AskTokenizer(request.head, ParseApplyTemplateBody(*body), &ApplyTemplateJson,
               std::move(exchange));
}

void TextHandlers::TokenizerInfo(const HttpRequest& request,
                                 std::shared_ptr<HttpExchange> exchange) const {
  AskTokenizer(request.head, TokenizerInfoRequest(), &TokenizerInfoJson, std::move(exchange));
}

void TextHandlers::Detokenize(const HttpRequest& request,
                              std::shared_ptr<HttpExchange> exchange) const {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  absl::StatusOr<v1::DetokenizeRequest> asked = ParseDetokenizeBody(*body);
  if (!asked.ok()) return exchange->Answer(ErrorResponse(asked.status()));
  const absl::StatusOr<Caller> caller = authenticator_->CallerOf(request.head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  core_->loop()->Post(
      [core = core_, principal = caller->principal, exchange, asked = *std::move(asked)]() mutable {
        core->texts()->Detokenize(
            std::move(asked), {.principal = principal},
            [exchange](const absl::StatusOr<v1::DetokenizeResponse>& response) {
              if (!response.ok()) {
                return AnswerLater(exchange, ErrorResponse(WithParam(response.status(), "tokens")));
              }
              AnswerLater(exchange, JsonResponse(DetokenizeJson(*response)));
            });
      });
}

}  // namespace tidepool::service
