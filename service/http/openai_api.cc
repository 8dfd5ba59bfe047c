#include "service/http/openai_api.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/base/version.h"
#include "service/http/cors.h"
#include "service/http/http_error.h"
#include "service/http/json.h"
#include "service/http/metrics_page.h"
#include "service/http/openapi.h"
#include "service/http/request_key.h"
#include "service/http/text_api.h"

namespace tidepool::service {

struct OpenAiApi::Route {
  ApiPath api;
  void (OpenAiApi::*handle)(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
};

namespace {

std::string Printable(const std::string& path) { return base::Quoted(path); }

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

// Failed probes are not logged here: whoever sent the probe reports it.
HttpResponse ProbeResponse(int status, std::string text) {
  HttpResponse response = TextResponse(status, std::move(text));
  response.failure_log = HttpResponse::FailureLog::kElsewhere;
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

// A web page can post a form to any server, but only with a form's content type. So requiring JSON
// stops other sites' pages from sending completions through a reader's browser.
bool IsJson(const std::string& content_type) {
  const std::string type = absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';'))));
  return type == "application/json";
}

bool IsEncoded(const std::string& content_encoding) {
  return !content_encoding.empty() && !absl::EqualsIgnoreCase(content_encoding, "identity");
}

// Adapts a parser to ApiPath.
template <auto parse>
void ReadBodyOf(const Json& body, FieldRecorder* recorder) {
  static_cast<void>(parse(body, recorder));
}

// Same format as vLLM: `root` is the model behind an alias.
Json ModelJson(const v1::Model& model, absl::string_view id, int64_t created) {
  return {{"id", std::string(id)},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tidepool"},
          {"root", model.name()},
          {"parent", Json()},
          {"max_model_len", model.context_length()}};
}

// Lists each name once.
Json ModelListJson(const v1::ListModelsResponse& response, int64_t created) {
  Json list = Json::array();
  std::set<std::string> ids;
  for (const v1::Model& model : response.models()) {
    if (model.aliases().empty() && ids.insert(model.name()).second) {
      list.push_back(ModelJson(model, model.name(), created));
    }
    for (const std::string& alias : model.aliases()) {
      if (ids.insert(alias).second) list.push_back(ModelJson(model, alias, created));
    }
  }
  return {{"object", "list"}, {"data", std::move(list)}};
}

// A user sees only its own usage. Admins see all, and so does everyone without authentication.
PrincipalUsageMap UsageFor(const Caller& caller, const PrincipalUsageMap& all) {
  if (caller.role != Role::kUser) return all;
  const auto own = all.find(caller.principal);
  return own == all.end() ? PrincipalUsageMap() : PrincipalUsageMap{*own};
}

// Responds on the exchange's executor. Call it from any thread.
void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, HttpResponse response) {
  exchange->Post([exchange, response = std::move(response)] { exchange->Answer(response); });
}

}  // namespace

OpenAiApi::OpenAiApi(const HttpFront& front, const Options& options)
    : front_(front),
      authenticator_(options.authenticator),
      web_(options.web),
      started_(absl::ToUnixSeconds(absl::Now())),
      log_(options.log, &base::Clock::Real()) {}

absl::Span<const OpenAiApi::Route> OpenAiApi::Routes() {
  using For = ApiPath::For;
  using Answers = ApiPath::Answers;
  static constexpr Route kRoutes[] = {
      {{"/v1/completions", "POST", For::kClients, "Continue a prompt.", Answers::kJsonOrEvents,
        ReadBodyOf<&ParseCompletionRequest>},
       &OpenAiApi::Complete},
      {{"/v1/chat/completions", "POST", For::kClients, "Respond to a conversation.",
        Answers::kJsonOrEvents, ReadBodyOf<&ParseChatRequest>},
       &OpenAiApi::Chat},
      {{"/tokenize", "POST", For::kClients, "Turn a text or a conversation into tokens.",
        Answers::kJson, ReadBodyOf<&ParseTokenizeBody>},
       &OpenAiApi::Tokenize},
      {{"/detokenize", "POST", For::kClients, "Turn tokens into text.", Answers::kJson,
        ReadBodyOf<&ParseDetokenizeBody>},
       &OpenAiApi::Detokenize},
      {{"/apply-template", "POST", For::kClients,
        "Render a conversation with the model's chat template.", Answers::kJson,
        ReadBodyOf<&ParseApplyTemplateBody>},
       &OpenAiApi::ApplyTemplate},
      {{"/tokenizer_info", "GET", For::kClients, "Describe the tokenizer."},
       &OpenAiApi::TokenizerInfo},
      {{"/v1/models", "GET", For::kClients, "List the served models."}, &OpenAiApi::ListModels},
      {{"/v1/models/", "GET", For::kClients, "Describe one model."}, &OpenAiApi::GetModel},
      {{"/metrics", "GET", For::kClients, "Metrics in Prometheus' text format.", Answers::kText},
       &OpenAiApi::Metrics},
      // Probes and load balancers have no tokens. They only learn that the process is alive.
      {{"/health", "GET", For::kAnybody, "Whether requests are served; no body.",
        Answers::kNothing},
       &OpenAiApi::Health},
      {{"/healthz", "GET", For::kAnybody, "Whether the process is alive.", Answers::kText},
       &OpenAiApi::Healthz},
      {{"/readyz", "GET", For::kAnybody, "Whether a worker accepts requests.", Answers::kText},
       &OpenAiApi::Readyz},
      // Says which release this is, but nothing about what it serves.
      {{"/version", "GET", For::kAnybody, "The server's version."}, &OpenAiApi::Version},
      {{"/openapi.json", "GET", For::kAnybody, "This description."}, &OpenAiApi::OpenApi},
  };
  return kRoutes;
}

const OpenAiApi::Route* OpenAiApi::FindRoute(const std::string& path) {
  for (const Route& route : Routes()) {
    const absl::string_view known = route.api.path;
    if (absl::EndsWith(known, "/") && absl::StartsWith(path, known)) return &route;
    // Some clients append a '/' to the address.
    if (path == known || path == absl::StrCat(known, "/")) return &route;
  }
  return nullptr;
}

std::string OpenAiApi::LabelOf(const std::string& path) {
  const Route* route = FindRoute(path);
  return route == nullptr ? "other" : route->api.path;
}

void OpenAiApi::OnResponse(const HttpHead& head, const HttpResponse& response) {
  log_.OnResponse(LabelOf(head.path), head, response);
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
  const std::string methods = AllowOf(route.api.method);
  if (IsPreflight(head)) response.headers = PreflightHeaders(web_.cors, head, methods);
  response.headers.emplace_back("Allow", methods);
  return response;
}

std::optional<HttpResponse> OpenAiApi::CheckHead(const HttpHead& head) {
  if (const absl::Status host = CheckHost(head.host, web_.hosts); !host.ok()) {
    return ErrorResponse(host);
  }
  const Route* route = FindRoute(head.path);
  if (route == nullptr) {
    return Refusal(404,
                   absl::StrCat("unknown path ", Printable(head.path), "; known paths: ",
                                absl::StrJoin(Routes(), ", ",
                                              [](std::string* list, const Route& one) {
                                                list->append(one.api.path);
                                              })),
                   "not_found");
  }
  const bool get = absl::string_view(route->api.method) == "GET";
  if (head.method == "OPTIONS") return AnswerOptions(*route, head);
  if (head.method != route->api.method && !(get && head.method == "HEAD")) {
    HttpResponse response =
        Refusal(405,
                absl::StrCat(Printable(head.path), " does not support the method ",
                             Printable(head.method), "; use ", AllowOf(route->api.method)),
                "method_not_allowed");
    response.headers = {{"Allow", AllowOf(route->api.method)}};
    return response;
  }
  if (route->api.who == ApiPath::For::kClients) {
    if (const auto caller = CallerOf(head); !caller.ok()) return ErrorResponse(caller.status());
  }
  if (!get && IsEncoded(head.content_encoding)) {
    HttpResponse response = Refusal(
        415,
        absl::StrCat(
            "Content-Encoding is ", Printable(head.content_encoding),
            ", which is not supported; send the body uncompressed, without Content-Encoding"),
        "unsupported_media_type");
    response.headers = {{"Accept-Encoding", "identity"}};
    return response;
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
  // A page can send a token only if its user gave it one.
  if (authenticator_ == nullptr && !web_.cors.Allows(head.origin)) {
    RETURN_IF_ERROR(CheckOrigin(head.origin, web_.pages));
  }
  return Admit(authenticator_, {.authorization = head.authorization, .api_key = head.api_key},
               Access::kClients);
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
  // Check again: the token may have expired while a long body arrived.
  absl::StatusOr<Caller> caller = CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  absl::StatusOr<RequestKey> key = RequestKeyOf(head, *request);
  if (!key.ok()) return exchange->Answer(ErrorResponse(key.status()));
  HttpAsker asker = {.caller = *std::move(caller),
                     .trace = ParseTraceContext(head.traceparent, head.tracestate),
                     .key = *std::move(key)};
  GenerationCall::Start(front_, *std::move(request), std::move(asker), std::move(exchange));
}

void OpenAiApi::ListModels(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  front_.core->loop()->Post([core = front_.core, started = started_, exchange] {
    core->ListModels([started, exchange](const absl::StatusOr<v1::ListModelsResponse>& response) {
      if (!response.ok()) return AnswerLater(exchange, ErrorResponse(response.status()));
      AnswerLater(exchange, JsonResponse(ModelListJson(*response, started)));
    });
  });
}

void OpenAiApi::GetModel(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  v1::GetModelRequest asked;
  absl::string_view name = absl::StripPrefix(request.head.path, "/v1/models/");
  if (name.size() > 1) absl::ConsumeSuffix(&name, "/");
  asked.set_model(std::string(name));
  if (const absl::Status utf8 = base::CheckUtf8(asked.model(), "the model's name"); !utf8.ok()) {
    return exchange->Answer(ErrorResponse(utf8));
  }
  front_.core->loop()->Post([core = front_.core, started = started_, asked, exchange] {
    core->GetModel(asked, [started, asked, exchange](const absl::StatusOr<v1::Model>& model) {
      AnswerLater(exchange, model.ok() ? JsonResponse(ModelJson(*model, asked.model(), started))
                                       : ErrorResponse(model.status()));
    });
  });
}

void OpenAiApi::Metrics(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Caller> caller = CallerOf(request.head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  front_.core->loop()->Post([core = front_.core, caller = *caller, http = log_.counts(),
                             exchange]() mutable {
    core->stats()->Get({}, [requests = *core->requests()->metrics(),
                        principals = UsageFor(caller, core->requests()->principal_usage()),
                        http = std::move(http),
                        exchange](const absl::StatusOr<v1::GetStatsResponse>& stats) {
      if (!stats.ok()) return AnswerLater(exchange, ErrorResponse(stats.status()));
      HttpResponse response = TextResponse(200, MetricsPage(*stats, requests, principals, http));
      response.content_type = kMetricsType;
      AnswerLater(exchange, std::move(response));
    });
  });
}

absl::Status OpenAiApi::Live() {
  base::MutexLock lock(&mutex_);
  return live_;
}

// As in vLLM, only the status matters.
void OpenAiApi::Health(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  const bool serves = ready_ && store_ok_ && !draining_ && Live().ok();
  HttpResponse response = ProbeResponse(serves ? 200 : 503, "");
  response.content_type.clear();
  exchange->Answer(std::move(response));
}

void OpenAiApi::Version(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  exchange->Answer(JsonResponse({{"version", kVersion}}));
}

void OpenAiApi::OpenApi(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  std::vector<ApiPath> paths;
  for (const Route& route : Routes()) paths.push_back(route.api);
  exchange->Answer(JsonResponse(OpenApiDocument(paths)));
}

void OpenAiApi::Healthz(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  const absl::Status live = Live();
  exchange->Answer(live.ok() ? ProbeResponse(200, "ok\n")
                             : ProbeResponse(503, absl::StrCat(live.message(), "\n")));
}

void OpenAiApi::Readyz(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  if (draining_) return exchange->Answer(ProbeResponse(503, "shutting down\n"));
  if (!store_ok_) {
    return exchange->Answer(ProbeResponse(503, "the session store is unavailable\n"));
  }
  exchange->Answer(ready_ ? ProbeResponse(200, "ready\n")
                          : ProbeResponse(503, "no worker accepts requests\n"));
}

}  // namespace tidepool::service
