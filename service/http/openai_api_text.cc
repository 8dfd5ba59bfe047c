// The part of OpenAiApi that handles text calls.
#include <memory>
#include <utility>

#include "service/http/http_error.h"
#include "service/http/openai_api.h"
#include "service/http/text_api.h"

namespace tidepool::service {
namespace {

// Responds on the exchange's executor. Call it from any thread.
void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, const absl::StatusOr<Json>& json) {
  HttpResponse response;
  if (json.ok()) {
    response.body = DumpJson(*json);
  } else {
    response = ErrorResponse(json.status());
  }
  exchange->Post([exchange, response = std::move(response)] { exchange->Answer(response); });
}

}  // namespace

void OpenAiApi::AskTokenizer(const HttpHead& head, absl::StatusOr<v1::TokenizeRequest> request,
                             TokenizeRender render, std::shared_ptr<HttpExchange> exchange) {
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status()));
  const absl::StatusOr<Caller> caller = CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  front_.core->loop()->Post([core = front_.core, principal = caller->principal, render, exchange,
                             asked = *std::move(request)]() mutable {
    core->texts()->Tokenize(
        std::move(asked), {.principal = principal},
        [render, exchange](const absl::StatusOr<v1::TokenizeResponse>& response) {
          if (!response.ok()) return AnswerLater(exchange, response.status());
          AnswerLater(exchange, render(*response));
        });
  });
}

void OpenAiApi::Tokenize(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  AskTokenizer(request.head, ParseTokenizeBody(*body), &TokenizeJson, std::move(exchange));
}

void OpenAiApi::ApplyTemplate(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  AskTokenizer(request.head, ParseApplyTemplateBody(*body), &ApplyTemplateJson,
               std::move(exchange));
}

void OpenAiApi::TokenizerInfo(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  AskTokenizer(request.head, TokenizerInfoRequest(), &TokenizerInfoJson, std::move(exchange));
}

void OpenAiApi::Detokenize(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  absl::StatusOr<v1::DetokenizeRequest> asked = ParseDetokenizeBody(*body);
  if (!asked.ok()) return exchange->Answer(ErrorResponse(asked.status()));
  const absl::StatusOr<Caller> caller = CallerOf(request.head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  front_.core->loop()->Post([core = front_.core, principal = caller->principal, exchange,
                             asked = *std::move(asked)]() mutable {
    core->texts()->Detokenize(std::move(asked), {.principal = principal},
                              [exchange](const absl::StatusOr<v1::DetokenizeResponse>& response) {
                                if (!response.ok()) {
                                  return AnswerLater(exchange,
                                                     WithParam(response.status(), "tokens"));
                                }
                                AnswerLater(exchange, DetokenizeJson(*response));
                              });
  });
}

}  // namespace tidepool::service
