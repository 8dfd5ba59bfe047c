// OpenAiApi: the HTTP API. It serves OpenAI's endpoints, health probes and metrics.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "service/auth/authenticator.h"
#include "service/base/log_level.h"
#include "service/http/generation_call.h"
#include "service/http/generation_handlers.h"
#include "service/http/health_probes.h"
#include "service/http/http_authenticator.h"
#include "service/http/http_exchange.h"
#include "service/http/http_log.h"
#include "service/http/metrics_handler.h"
#include "service/http/model_handlers.h"
#include "service/http/route_table.h"
#include "service/http/text_handlers.h"
#include "service/http/web_access.h"

namespace tidepool::service {

// Thread-safe. It must outlive the threads that call it. Exchanges may outlive it.
class OpenAiApi final : public HttpHandler {
 public:
  struct Options {
    // Must outlive the server. Null: everyone may send requests, except web pages that `web.pages`
    // does not allow.
    const Authenticator* authenticator = nullptr;
    WebAccess web;
    LogSink log;  // called on any thread
  };
  OpenAiApi(const HttpFront& front, const Options& options);

  // Set the results of the health probes. See HealthProbes.
  void SetReady(bool ready) { probes_.SetReady(ready); }
  void SetStore(const absl::Status& store) { probes_.SetStore(store); }
  void SetLive(const absl::Status& live) { probes_.SetLive(live); }
  void StopReady() { probes_.StopReady(); }

  HttpHeaders CommonHeaders(const HttpHead& head) override;
  void OnResponse(const HttpHead& head, const HttpResponse& response) override;
  std::optional<HttpResponse> CheckHead(const HttpHead& head) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;

 private:
  Routes AllRoutes() const;
  HttpResponse AnswerOptions(const Route& route, const HttpHead& head) const;

  const WebAccess web_;
  const HttpAuthenticator authenticator_;
  HttpLog log_;
  HealthProbes probes_;
  const GenerationHandlers generation_;
  const TextHandlers text_;
  const ModelHandlers models_;
  const MetricsHandler metrics_;
  const RouteTable routes_;  // must be last, because the handlers in it are the members above
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
