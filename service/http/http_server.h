// HttpServer: accepts HTTP connections and passes their requests to a handler.
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
  std::string listen;  // HOST:PORT; port 0: the system chooses a free port
  HttpLimits limits;
  // If set, it contains a certificate, and outlives the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // Measures the ages of connections. Outlives the server. Timeouts always use the real clock.
  const base::Clock* clock = &base::Clock::Real();
};

// Thread-safe. The server must outlive every HttpExchange that it has passed to the handler.
class HttpServer {
 public:
  // Starts a server. `handler` must live until Shutdown has returned. INVALID_ARGUMENT if the
  // address is invalid. UNAVAILABLE if the server cannot listen on it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpHandler* handler,
                                                           const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // HOST:PORT with the port that is really used.
  virtual const std::string& address() const = 0;
  virtual int64_t connections() const = 0;

  // Stops accepting connections, closes idle connections, and gives running responses the time
  // `grace` to finish. Returns when all threads of the server have ended. A second call does
  // nothing.
  virtual void Shutdown(absl::Duration grace) = 0;
  // Ends the grace time of Shutdown at once, also in a call that is already running.
  virtual void Hurry() = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_SERVER_H_
