// RouteTable: the paths and methods of the HTTP API, with their handlers.
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
  // The OpenAPI description lists the routes in this order.
  explicit RouteTable(Routes routes) : routes_(std::move(routes)) {}

  // Returns null if the path is unknown. A '/' at the end of `path` is ignored.
  const Route* Find(const std::string& path) const;
  // Returns the path as it is written in this table, for logs and metrics. Returns "other" if the
  // path is unknown.
  std::string LabelOf(const std::string& path) const;
  std::vector<ApiPath> Paths() const;

  // Returns a response with status 404 that lists the known paths.
  HttpResponse UnknownPath(const std::string& path) const;

 private:
  const Routes routes_;
};

// Returns the value of the Allow header for a path that supports this method.
std::string AllowOf(const ApiPath& api);
// Returns a response with status 405 if the path does not support the request's method. OPTIONS is
// always supported.
std::optional<HttpResponse> CheckMethod(const ApiPath& api, const HttpHead& head);
// Returns a response with status 415 if the method has a body, and the body's type or encoding is
// not supported.
std::optional<HttpResponse> CheckContentType(const ApiPath& api, const HttpHead& head);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_ROUTE_TABLE_H_
