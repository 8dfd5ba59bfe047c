#include "service/http/metrics_handler.h"

#include <utility>

#include "absl/status/statusor.h"
#include "service/http/api_response.h"
#include "service/http/metrics_page.h"

namespace tidepool::service {
namespace {

// Returns the usage that the caller may see. A user sees only its own usage. Admins see all usage,
// and so does everyone if there is no authentication.
PrincipalUsageMap UsageFor(const Caller& caller, const PrincipalUsageMap& all) {
  if (caller.role != Role::kUser) return all;
  const auto own = all.find(caller.principal);
  return own == all.end() ? PrincipalUsageMap() : PrincipalUsageMap{*own};
}

}  // namespace

void MetricsHandler::AddTo(Routes* routes) const {
  routes->push_back({{.path = "/metrics",
                      .method = "GET",
                      .summary = "Metrics in Prometheus' text format.",
                      .answers = ApiPath::Answers::kText},
                     [this](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
                       Answer(request.head, std::move(exchange));
                     }});
}

void MetricsHandler::Answer(const HttpHead& head, std::shared_ptr<HttpExchange> exchange) const {
  const absl::StatusOr<Caller> caller = authenticator_->CallerOf(head);
  if (!caller.ok()) return exchange->Answer(ErrorResponse(caller.status()));
  core_->loop()->Post([core = core_, caller = *caller, http = log_->counts(),
                       exchange = std::move(exchange)]() mutable {
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

}  // namespace tidepool::service
