#include "service/http/openai_api.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/version.h"
#include "service/http/api_response.h"
#include "service/http/cors.h"
#include "service/http/openapi.h"
#include "service/http/request_key.h"

namespace tidepool::service {

OpenAiApi::OpenAiApi(const HttpFront& front, const Options& options)
    : web_(options.web),
      authenticator_(options.authenticator, &web_),
      log_(options.log, &base::Clock::Real()),
      generation_(front, &authenticator_),
      text_(front.core, &authenticator_),
      models_(front.core, absl::ToUnixSeconds(absl::Now())),
      metrics_(front.core, &authenticator_, &log_),
      routes_(AllRoutes()) {}

Routes OpenAiApi::AllRoutes() const {
  Routes routes;
  generation_.AddTo(&routes);
  text_.AddTo(&routes);
  models_.AddTo(&routes);
  metrics_.AddTo(&routes);
  probes_.AddTo(&routes);
  // Reports the release of this server, but nothing about its models.
  routes.push_back({{.path = "/version",
                     .method = "GET",
                     .who = ApiPath::For::kAnybody,
                     .summary = "The server's version."},
                    [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                      exchange->Answer(JsonResponse({{"version", kVersion}}));
                    }});
  routes.push_back({{.path = "/openapi.json",
                     .method = "GET",
                     .who = ApiPath::For::kAnybody,
                     .summary = "This description."},
                    [this](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                      exchange->Answer(JsonResponse(OpenApiDocument(routes_.Paths())));
                    }});
  return routes;
}

void OpenAiApi::OnResponse(const HttpHead& head, const HttpResponse& response) {
  log_.OnResponse(routes_.LabelOf(head.path), head, response);
}

HttpHeaders OpenAiApi::CommonHeaders(const HttpHead& head) {
  HttpHeaders headers = CorsHeaders(web_.cors, head);
  if (std::string name = RequestNameOf(head); !name.empty()) {
    headers.emplace_back("x-request-id", std::move(name));
  }
  return headers;
}

HttpResponse OpenAiApi::AnswerOptions(const Route& route, const HttpHead& head) const {
  HttpResponse response = TextResponse(204, "");
  response.content_type.clear();
  const std::string methods = AllowOf(route.api);
  if (IsPreflight(head)) response.headers = PreflightHeaders(web_.cors, head, methods);
  response.headers.emplace_back("Allow", methods);
  return response;
}

std::optional<HttpResponse> OpenAiApi::CheckHead(const HttpHead& head) {
  if (const absl::Status host = CheckHost(head.host, web_.hosts); !host.ok()) {
    return ErrorResponse(host);
  }
  const Route* route = routes_.Find(head.path);
  if (route == nullptr) return routes_.UnknownPath(head.path);
  if (head.method == "OPTIONS") return AnswerOptions(*route, head);
  if (auto refusal = CheckMethod(route->api, head)) return refusal;
  if (route->api.who == ApiPath::For::kClients) {
    const absl::StatusOr<Caller> caller = authenticator_.CallerOf(head);
    if (!caller.ok()) return ErrorResponse(caller.status());
  }
  return CheckContentType(route->api, head);
}

void OpenAiApi::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  routes_.Find(request.head.path)->handle(std::move(request), std::move(exchange));
}

}  // namespace tidepool::service
