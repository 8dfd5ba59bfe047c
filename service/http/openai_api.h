// OpenAiApi: what is served over HTTP: OpenAI's endpoints, health, metrics.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "service/auth/authenticator.h"
#include "service/http/generation_call.h"
#include "service/http/http_exchange.h"
#include "service/http/page_origin.h"

namespace tidepool::service {

// Thread-safe. Outlives the threads that call it; exchanges may outlive it.
class OpenAiApi final : public HttpHandler {
 public:
  // The authenticator, which may be null (anybody may ask, from `pages` alone), outlives it.
  OpenAiApi(const HttpFront& front, const Authenticator* authenticator, Pages pages);

  // What /readyz tells.
  void SetReady(bool ready) { ready_ = ready; }
  // What /healthz tells: OK, or why this process is of no use.
  void SetLive(const absl::Status& live) {
    base::MutexLock lock(&mutex_);
    live_ = live;
  }
  // /readyz is not ready from now on, whatever SetReady says.
  void StopReady() { draining_ = true; }

  std::optional<HttpResponse> CheckHead(const HttpHead& head) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;

 private:
  struct Route;
  static const Route* FindRoute(const std::string& path);

  absl::StatusOr<Caller> CallerOf(const HttpHead& head) const;
  void Start(const HttpHead& head, absl::StatusOr<OpenAiRequest> request,
             std::shared_ptr<HttpExchange> exchange);

  void Complete(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Chat(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void ListModels(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void GetModel(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Metrics(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Healthz(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Readyz(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  const HttpFront front_;
  const Authenticator* const authenticator_;
  const Pages pages_;
  const int64_t started_;  // Unix seconds
  std::atomic<bool> ready_ = false;
  std::atomic<bool> draining_ = false;
  base::Mutex mutex_;
  absl::Status live_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_API_H_
