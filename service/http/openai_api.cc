#include "service/http/openai_api.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/status_macros.h"
#include "service/http/http_error.h"
#include "service/http/json.h"
#include "service/http/metrics_page.h"

namespace tidepool::service {

struct OpenAiApi::Route {
  const char* path;  // one that ends with '/' stands for all that begin with it
  const char* method;
  enum class For : uint8_t { kAnybody, kClients } who;
  void (OpenAiApi::*handle)(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
};

namespace {

std::string Printable(const std::string& path) { return engine::Quoted(path); }

HttpResponse JsonResponse(const Json& json) {
  HttpResponse response;
  response.body = DumpJson(json);
  return response;
}

HttpResponse TextResponse(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(text);
  return response;
}

HttpResponse Refusal(int status, const std::string& message, const std::string& code) {
  HttpResponse response = JsonResponse(ErrorJson(
      {.status = status, .message = message, .type = "invalid_request_error", .code = code}));
  response.status = status;
  return response;
}

std::string AllowOf(absl::string_view method) {
  return absl::StrCat(method, method == "GET" ? ", HEAD" : "", ", OPTIONS");
}

// Forms of web pages can post to any server, but not with this type: a page elsewhere cannot make
// its reader's browser ask for completions.
bool IsJson(const std::string& content_type) {
  const std::string type = absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';'))));
  return type == "application/json";
}

Json ModelJson(const v1::Model& model, int64_t created) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tidepool"},
          {"max_model_len", model.context_length()}};
}

// A user's own; what others used is for admins, and for everybody where nobody is told apart.
PrincipalUsageMap UsageFor(const Caller& caller, const PrincipalUsageMap& all) {
  if (caller.role != Role::kUser) return all;
  const auto own = all.find(caller.principal);
  return own == all.end() ? PrincipalUsageMap() : PrincipalUsageMap{*own};
}

// Answers on the exchange's executor, from any thread.
void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, HttpResponse response) {
  exchange->Post([exchange, response = std::move(response)] { exchange->Answer(response); });
}

}  // namespace

OpenAiApi::OpenAiApi(const HttpFront& front, const Authenticator* authenticator, Pages pages)
    : front_(front),
      authenticator_(authenticator),
      pages_(pages),
      started_(absl::ToUnixSeconds(absl::Now())) {}

const OpenAiApi::Route* OpenAiApi::FindRoute(const std::string& path) {
  using For = Route::For;
  static constexpr Route kRoutes[] = {
      {"/v1/completions", "POST", For::kClients, &OpenAiApi::Complete},
      {"/v1/chat/completions", "POST", For::kClients, &OpenAiApi::Chat},
      {"/v1/models", "GET", For::kClients, &OpenAiApi::ListModels},
      {"/v1/models/", "GET", For::kClients, &OpenAiApi::GetModel},
      {"/metrics", "GET", For::kClients, &OpenAiApi::Metrics},
      // Probes and load balancers have no tokens, and learn that the process lives.
      {"/healthz", "GET", For::kAnybody, &OpenAiApi::Healthz},
      {"/readyz", "GET", For::kAnybody, &OpenAiApi::Readyz},
  };
  for (const Route& route : kRoutes) {
    const bool prefix = absl::EndsWith(route.path, "/");
    if (prefix ? absl::StartsWith(path, route.path) : path == route.path) return &route;
  }
  return nullptr;
}

std::optional<HttpResponse> OpenAiApi::CheckHead(const HttpHead& head) {
  const Route* route = FindRoute(head.path);
  if (route == nullptr) {
    return Refusal(404,
                   absl::StrCat("there is nothing at ", Printable(head.path),
                                "; served: /v1/completions, /v1/chat/completions, /v1/models, "
                                "/metrics, /healthz, /readyz"),
                   "not_found");
  }
  const bool get = absl::string_view(route->method) == "GET";
  if (head.method == "OPTIONS") {
    HttpResponse response = TextResponse(204, "");
    response.content_type.clear();
    response.headers = {{"Allow", AllowOf(route->method)}};
    return response;
  }
  if (head.method != route->method && !(get && head.method == "HEAD")) {
    HttpResponse response =
        Refusal(405,
                absl::StrCat(Printable(head.path), " does not take the method ",
                             Printable(head.method), "; it takes ", AllowOf(route->method)),
                "method_not_allowed");
    response.headers = {{"Allow", AllowOf(route->method)}};
    return response;
  }
  if (route->who == Route::For::kClients) {
    if (const auto caller = CallerOf(head); !caller.ok()) return ErrorResponse(caller.status());
  }
  if (!get && !IsJson(head.content_type)) {
    return Refusal(415,
                   absl::StrCat("the body's type is ", Printable(head.content_type),
                                "; send Content-Type: application/json"),
                   "unsupported_media_type");
  }
  return std::nullopt;
}

absl::StatusOr<Caller> OpenAiApi::CallerOf(const HttpHead& head) const {
  // A token is no page's but by its reader's will.
  if (authenticator_ == nullptr) RETURN_IF_ERROR(CheckOrigin(head.origin, pages_));
  return Admit(authenticator_, {.authorization = head.authorization}, Access::kClients);
}

void OpenAiApi::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const Route* route = FindRoute(request.head.path);
  (this->*route->handle)(std::move(request), std::move(exchange));
}

void OpenAiApi::Complete(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  Start(request.head, ParseCompletionRequest(*body), std::move(exchange));
}

void OpenAiApi::Chat(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> body = ParseJsonBody(request.body);
  if (!body.ok()) return exchange->Answer(ErrorResponse(body.status()));
  Start(request.head, ParseChatRequest(*body), std::move(exchange));
}

void OpenAiApi::Start(const HttpHead& head, absl::StatusOr<OpenAiRequest> request,
                      std::shared_ptr<HttpExchange> exchange) {
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status()));
  // Once more: a long body may outlive its token.
  absl::StatusOr<Caller> caller = CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  HttpAsker asker = {.caller = *std::move(caller),
                     .trace = ParseTraceContext(head.traceparent, head.tracestate)};
  GenerationCall::Start(front_, *std::move(request), std::move(asker), std::move(exchange));
}

void OpenAiApi::ListModels(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  front_.core->loop()->Post([core = front_.core, started = started_, exchange] {
    core->ListModels([started, exchange](const absl::StatusOr<v1::ListModelsResponse>& response) {
      if (!response.ok()) return AnswerLater(exchange, ErrorResponse(response.status()));
      Json list = Json::array();
      for (const v1::Model& model : response->models()) list.push_back(ModelJson(model, started));
      AnswerLater(exchange, JsonResponse({{"object", "list"}, {"data", std::move(list)}}));
    });
  });
}

void OpenAiApi::GetModel(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  v1::GetModelRequest asked;
  asked.set_model(std::string(absl::StripPrefix(request.head.path, "/v1/models/")));
  if (const absl::Status utf8 = engine::CheckUtf8(asked.model(), "the model's name"); !utf8.ok()) {
    return exchange->Answer(ErrorResponse(utf8));
  }
  front_.core->loop()->Post([core = front_.core, started = started_, asked, exchange] {
    core->GetModel(asked, [started, exchange](const absl::StatusOr<v1::Model>& model) {
      AnswerLater(exchange, model.ok() ? JsonResponse(ModelJson(*model, started))
                                       : ErrorResponse(model.status()));
    });
  });
}

void OpenAiApi::Metrics(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Caller> caller = CallerOf(request.head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  front_.core->loop()->Post([core = front_.core, caller = *caller, exchange] {
    core->GetStats({}, [requests = core->request_metrics(),
                        principals = UsageFor(caller, core->principal_usage()),
                        exchange](const absl::StatusOr<v1::GetStatsResponse>& stats) {
      if (!stats.ok()) return AnswerLater(exchange, ErrorResponse(stats.status()));
      HttpResponse response = TextResponse(200, MetricsPage(*stats, requests, principals));
      response.content_type = kMetricsType;
      AnswerLater(exchange, std::move(response));
    });
  });
}

void OpenAiApi::Healthz(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  absl::Status live;
  {
    base::MutexLock lock(&mutex_);
    live = live_;
  }
  exchange->Answer(live.ok() ? TextResponse(200, "ok\n")
                             : TextResponse(503, absl::StrCat(live.message(), "\n")));
}

void OpenAiApi::Readyz(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  if (draining_) return exchange->Answer(TextResponse(503, "shutting down\n"));
  exchange->Answer(ready_ ? TextResponse(200, "ready\n")
                          : TextResponse(503, "no worker takes requests\n"));
}

}  // namespace tidepool::service
