// HttpServer: listens, and gives each connection to a handler.
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
  // With a certificate; outlives the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // Of connections' ages; outlives the server. Timeouts are the machine's in any case.
  const base::Clock* clock = &base::Clock::Real();
};

// Thread-safe. It outlives whatever holds an exchange.
class HttpServer {
 public:
  // `handler` outlives the server's Shutdown. INVALID_ARGUMENT: an address that cannot be read;
  // UNAVAILABLE: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpHandler* handler,
                                                           const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // HOST:PORT with the port that was taken.
  virtual const std::string& address() const = 0;
  virtual int64_t connections() const = 0;

  // Takes no more connections, closes the idle ones, lets answers that are on their way go out
  // within `grace`, and returns when no thread of the server runs. Later calls do nothing.
  virtual void Shutdown(absl::Duration grace) = 0;
  // Every Shutdown, one that runs included, has no grace from now on.
  virtual void Hurry() = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_SERVER_H_
