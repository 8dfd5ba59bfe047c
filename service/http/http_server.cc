#include "service/http/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "service/base/fd_headroom.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

// Two threads, so that one can parse a long body while the other one sends tokens.
constexpr int kThreads = 2;
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

constexpr char kTooMany[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    "Connection: close\r\nContent-Length: 115\r\n\r\n"
    "{\"error\":{\"message\":\"too many connections; retry after a "
    "moment\",\"type\":\"server_error\","
    "\"param\":null,\"code\":\"busy\"}}";

absl::Status CannotListen(const std::string& listen, const Error& error) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", listen, " for HTTP: ", error.message(),
                   "; choose another address with --http, or --http off"));
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(HttpHandler* handler, const HttpServerOptions& options)
      : acceptor_(asio::make_strand(io_)), pause_(acceptor_.get_executor()) {
    all_.handler = handler;
    all_.limits = options.limits;
    all_.tls = options.tls;
    all_.clock = options.clock;
  }
  ~HttpServerImpl() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& listen) {
    ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(listen));
    Error error;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(parts.host, std::to_string(parts.port), tcp::resolver::passive, error);
    if (error || found.empty()) return CannotListen(listen, error);
    const tcp::endpoint endpoint = *found.begin();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return CannotListen(listen, error);
    port_ = acceptor_.local_endpoint().port();
    const bool v6 = absl::StrContains(parts.host, ":");
    address_ = absl::StrCat(v6 ? "[" : "", parts.host, v6 ? "]" : "", ":", port_);
    Accept();
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { io_.run(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  const std::string& address() const override { return address_; }
  int64_t connections() const override {
    base::MutexLock lock(&all_.mutex);
    return static_cast<int64_t>(all_.live.size());
  }

  void Shutdown(absl::Duration grace) override {
    base::MutexLock shutdown_lock(&shutdown_mutex_);
    if (std::exchange(down_, true)) return;
    all_.draining = true;
    asio::post(acceptor_.get_executor(), [this] {
      Error ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    ForEach([](HttpConnection* connection) { connection->Drain(); });
    if (!threads_.empty() && !WaitEmpty(grace, Patience::kMayHurry)) {
      ForEach([](HttpConnection* connection) { connection->Abort(); });
      WaitEmpty(absl::Seconds(1), Patience::kFull);
    }
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  void Hurry() override {
    base::MutexLock lock(&all_.mutex);
    hurried_ = true;
    all_.changed.NotifyAll();
  }

 private:
  void Accept() {
    acceptor_.async_accept(asio::make_strand(io_), [this](const Error& error, tcp::socket socket) {
      if (!acceptor_.is_open() || error == asio::error::operation_aborted) return;
      if (error) return AcceptLater();
      if (connections() < all_.limits.max_connections && LeavesFdHeadroom(socket.native_handle())) {
        std::make_shared<HttpConnection>(std::move(socket), &all_)->Start();
      } else if (all_.tls == nullptr) {
        Error ignored;
        socket.non_blocking(true, ignored);
        socket.send(asio::buffer(kTooMany, sizeof(kTooMany) - 1), 0, ignored);
      }
      Accept();
    });
  }

  // accept has failed, probably because no file descriptor is free. Tries again later, because
  // ending connections free descriptors.
  void AcceptLater() {
    pause_.expires_after(absl::ToChronoNanoseconds(kAcceptPause));
    pause_.async_wait([this](const Error& error) {
      if (!error && acceptor_.is_open()) Accept();
    });
  }

  template <typename Function>
  void ForEach(Function function) {
    std::vector<std::shared_ptr<HttpConnection>> live;
    {
      base::MutexLock lock(&all_.mutex);
      for (const auto& [raw, weak] : all_.live) {
        if (auto connection = weak.lock()) live.push_back(std::move(connection));
      }
    }
    for (const auto& connection : live) function(connection.get());
  }

  enum class Patience : uint8_t { kFull, kMayHurry };
  // Waits until all connections are closed. Returns false if some are still open after `time`. Also
  // returns false if Hurry was called and `patience` is kMayHurry.
  bool WaitEmpty(absl::Duration time, Patience patience) {
    const absl::Duration until = base::Clock::Real().Monotonic() + time;
    base::MutexLock lock(&all_.mutex);
    while (!all_.live.empty()) {
      const absl::Duration left = until - base::Clock::Real().Monotonic();
      const bool hurries = hurried_ && patience == Patience::kMayHurry;
      if (left <= absl::ZeroDuration() || hurries) return false;
      all_.changed.WaitFor(&all_.mutex, left);
    }
    return true;
  }

  mutable HttpConnections all_;  // outlives the members below, because they hold connections
  bool hurried_ = false;         // guarded by all_.mutex
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  int port_ = 0;
  std::string address_;
  std::vector<std::thread> threads_;
  base::Mutex shutdown_mutex_;
  bool down_ TIDEPOOL_GUARDED_BY(shutdown_mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpHandler* handler,
                                                              const HttpServerOptions& options) {
  auto server = std::make_unique<HttpServerImpl>(handler, options);
  RETURN_IF_ERROR(server->Listen(options.listen));
  return server;
}

}  // namespace tidepool::service
