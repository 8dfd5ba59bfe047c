#include "service/http/health_probes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/http/api_response.h"

namespace tidepool::service {
namespace {

// HttpLog does not log failed probes, because the sender of the probe reports the failure.
HttpResponse ProbeResponse(int status, std::string text) {
  HttpResponse response = TextResponse(status, std::move(text));
  response.failure_log = HttpResponse::FailureLog::kElsewhere;
  return response;
}

}  // namespace

void HealthProbes::AddTo(Routes* routes) const {
  // Probes and load balancers send no tokens. The responses only tell them the state of the
  // process.
  constexpr auto kWho = ApiPath::For::kAnybody;
  using Answers = ApiPath::Answers;
  routes->push_back({{.path = "/health",
                      .method = "GET",
                      .who = kWho,
                      .summary = "Whether requests are served. The response has no body.",
                      .answers = Answers::kNothing},
                     [this](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                       exchange->Answer(Health());
                     }});
  routes->push_back({{.path = "/healthz",
                      .method = "GET",
                      .who = kWho,
                      .summary = "Whether the process is alive.",
                      .answers = Answers::kText},
                     [this](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                       exchange->Answer(Healthz());
                     }});
  routes->push_back({{.path = "/readyz",
                      .method = "GET",
                      .who = kWho,
                      .summary = "Whether a worker accepts requests.",
                      .answers = Answers::kText},
                     [this](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                       exchange->Answer(Readyz());
                     }});
}

absl::Status HealthProbes::Live() const {
  base::MutexLock lock(&mutex_);
  return live_;
}

HttpResponse HealthProbes::Health() const {
  const bool serves = ready_ && store_ok_ && !draining_ && Live().ok();
  HttpResponse response = ProbeResponse(serves ? 200 : 503, "");
  response.content_type.clear();
  return response;
}

HttpResponse HealthProbes::Healthz() const {
  const absl::Status live = Live();
  return live.ok() ? ProbeResponse(200, "ok\n")
                   : ProbeResponse(503, absl::StrCat(live.message(), "\n"));
}

HttpResponse HealthProbes::Readyz() const {
  if (draining_) return ProbeResponse(503, "shutting down\n");
  if (!store_ok_) return ProbeResponse(503, "the session store is unavailable\n");
  return ready_ ? ProbeResponse(200, "ready\n")
                : ProbeResponse(503, "no worker accepts requests\n");
}

}  // namespace tidepool::service
