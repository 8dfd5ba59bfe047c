// HttpServer: accepts connections and passes their requests to a handler.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_SERVER_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/http/http_connection.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

struct HttpServerOptions {
  std::string listen;  // HOST:PORT; port 0 takes a free one
  HttpLimits limits;
  // Has a certificate and outlives the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // For the ages of connections; outlives the server. Timeouts always use the machine's clock.
  const base::Clock* clock = &base::Clock::Real();
};

// Thread-safe. Outlives all holders of an exchange.
class HttpServer {
 public:
  // `handler` lives until Shutdown has returned. INVALID_ARGUMENT if the address is invalid,
  // UNAVAILABLE if it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpHandler* handler,
                                                           const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // HOST:PORT with the actual port.
  virtual const std::string& address() const = 0;
  virtual int64_t connections() const = 0;

  // Stops accepting connections, closes idle ones, and gives running responses `grace` to finish.
  // Returns when all threads of the server have ended. Calling it again does nothing.
  virtual void Shutdown(absl::Duration grace) = 0;
  // From now on Shutdown has no grace, even in a call that is already running.
  virtual void Hurry() = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_SERVER_H_
