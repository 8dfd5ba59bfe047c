// OpenAiApi: the HTTP API: OpenAI's endpoints, health, metrics.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/mutex.h"
#include "service/auth/authenticator.h"
#include "service/base/log_level.h"
#include "service/http/generation_call.h"
#include "service/http/http_exchange.h"
#include "service/http/http_log.h"
#include "service/http/json.h"
#include "service/http/web_access.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-safe. Outlives the threads that call it. Exchanges may outlive it.
class OpenAiApi final : public HttpHandler {
 public:
  struct Options {
    // Outlives the server. Null: anyone may call, but pages only if `web.pages` allows them.
    const Authenticator* authenticator = nullptr;
    WebAccess web;
    LogSink log;  // called on any thread
  };
  OpenAiApi(const HttpFront& front, const Options& options);

  // Sets the result of /readyz.
  void SetReady(bool ready) { ready_ = ready; }
  // While the session store cannot be written, /readyz is not ready.
  void SetStore(const absl::Status& store) { store_ok_ = store.ok(); }
  // Sets the result of /healthz: OK, or why the process must be restarted.
  void SetLive(const absl::Status& live) {
    base::MutexLock lock(&mutex_);
    live_ = live;
  }
  // From now on /readyz is not ready, even after SetReady.
  void StopReady() { draining_ = true; }

  HttpHeaders CommonHeaders(const HttpHead& head) override;
  void OnResponse(const HttpHead& head, const HttpResponse& response) override;
  std::optional<HttpResponse> CheckHead(const HttpHead& head) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;

 private:
  struct Route;
  static absl::Span<const Route> Routes();
  static const Route* FindRoute(const std::string& path);
  // Returns "other" for an unknown path.
  static std::string LabelOf(const std::string& path);

  HttpResponse AnswerOptions(const Route& route, const HttpHead& head) const;
  absl::Status Live();
  absl::StatusOr<Caller> CallerOf(const HttpHead& head) const;
  void Start(const HttpHead& head, absl::StatusOr<OpenAiRequest> request,
             std::shared_ptr<HttpExchange> exchange);

  void Complete(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Chat(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  // Text calls: parse `body`, call the front, and render the response with `render`.
  using TokenizeRender = Json (*)(const v1::TokenizeResponse&);
  void AskTokenizer(const HttpHead& head, absl::StatusOr<v1::TokenizeRequest> request,
                    TokenizeRender render, std::shared_ptr<HttpExchange> exchange);
  void Tokenize(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Detokenize(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void ApplyTemplate(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void TokenizerInfo(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void ListModels(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void GetModel(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Metrics(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Health(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Version(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void OpenApi(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Healthz(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Readyz(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  const HttpFront front_;
  const Authenticator* const authenticator_;
  const WebAccess web_;
  const int64_t started_;  // Unix seconds
  HttpLog log_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> store_ok_ = true;
  std::atomic<bool> draining_ = false;
  base::Mutex mutex_;
  absl::Status live_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
