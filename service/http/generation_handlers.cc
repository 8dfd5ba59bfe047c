#include "service/http/generation_handlers.h"

#include <utility>

#include "service/base/trace_context.h"
#include "service/http/json.h"
#include "service/http/request_key.h"

namespace tidepool::service {

void GenerationHandlers::AddTo(Routes* routes) const {
  using Answers = ApiPath::Answers;
  routes->push_back({{.path = "/v1/completions",
                      .method = "POST",
                      .summary = "Continue a prompt.",
                      .answers = Answers::kJsonOrEvents,
                      .read_body = ReadBodyOf<&ParseCompletionRequest>},
                     [this](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
                       const absl::StatusOr<Json> body = ParseJsonBody(request.body);
                       if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
                       Start(request.head, ParseCompletionRequest(*body), std::move(exchange));
                     }});
  routes->push_back({{.path = "/v1/chat/completions",
                      .method = "POST",
                      .summary = "Respond to a conversation.",
                      .answers = Answers::kJsonOrEvents,
                      .read_body = ReadBodyOf<&ParseChatRequest>},
                     [this](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
                       const absl::StatusOr<Json> body = ParseJsonBody(request.body);
                       if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
                       Start(request.head, ParseChatRequest(*body), std::move(exchange));
                     }});
}

void GenerationHandlers::Start(const HttpHead& head, absl::StatusOr<OpenAiRequest> request,
                               std::shared_ptr<HttpExchange> exchange) const {
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status()));
  // Check the caller again, because the token may have expired while a long body was received.
  absl::StatusOr<Caller> caller = authenticator_->CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  absl::StatusOr<RequestKey> key = RequestKeyOf(head, *request);
  if (!key.ok()) return exchange->Answer(ErrorResponse(key.status()));
  HttpAsker asker = {.caller = *std::move(caller),
                     .trace = ParseTraceContext(head.traceparent, head.tracestate),
                     .key = *std::move(key)};
  GenerationCall::Start(front_, *std::move(request), std::move(asker), std::move(exchange));
}

}  // namespace tidepool::service
