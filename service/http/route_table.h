// RouteTable: the paths and methods of the HTTP API, each with its handler.
#ifndef TIDEPOOL_SERVICE_HTTP_ROUTE_TABLE_H_
#define TIDEPOOL_SERVICE_HTTP_ROUTE_TABLE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service/http/http_exchange.h"
#include "service/http/openapi.h"

namespace tidepool::service {

struct Route {
  // Called on the exchange's executor.
  using Handle = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;

  ApiPath api;
  Handle handle;
};
using Routes = std::vector<Route>;

// Thread-safe.
class RouteTable {
 public:
  // The order is that of the API's description.
  explicit RouteTable(Routes routes) : routes_(std::move(routes)) {}

  // Null for an unknown path. A '/' at the end of a path is ignored.
  const Route* Find(const std::string& path) const;
  // The path in this table, for logs and metrics. "other" for an unknown path.
  std::string LabelOf(const std::string& path) const;
  std::vector<ApiPath> Paths() const;

  // 404, with the known paths.
  HttpResponse UnknownPath(const std::string& path) const;

 private:
  const Routes routes_;
};

// Allow's value for a path with this method.
std::string AllowOf(const ApiPath& api);
// Returns 405 if the path does not support the request's method. OPTIONS is always supported.
std::optional<HttpResponse> CheckMethod(const ApiPath& api, const HttpHead& head);
// Returns 415 if the method has a body, and its type or encoding is not supported.
std::optional<HttpResponse> CheckContentType(const ApiPath& api, const HttpHead& head);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_ROUTE_TABLE_H_
