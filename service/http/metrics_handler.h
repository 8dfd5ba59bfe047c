// MetricsHandler: handles /metrics over HTTP.
#ifndef TIDEPOOL_SERVICE_HTTP_METRICS_HANDLER_H_
#define TIDEPOOL_SERVICE_HTTP_METRICS_HANDLER_H_

#include <memory>

#include "service/front/front_core.h"
#include "service/http/http_authenticator.h"
#include "service/http/http_exchange.h"
#include "service/http/http_log.h"
#include "service/http/route_table.h"

namespace tidepool::service {

// Thread-safe.
class MetricsHandler {
 public:
  // All pointers must outlive this object. `core` must also outlive the exchanges.
  MetricsHandler(FrontCore* core, const HttpAuthenticator* authenticator, const HttpLog* log)
      : core_(core), authenticator_(authenticator), log_(log) {}

  // Adds the route /metrics. Its handler must not be called after this object is destroyed.
  void AddTo(Routes* routes) const;

 private:
  void Answer(const HttpHead& head, std::shared_ptr<HttpExchange> exchange) const;

  FrontCore* const core_;
  const HttpAuthenticator* const authenticator_;
  const HttpLog* const log_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_METRICS_HANDLER_H_
