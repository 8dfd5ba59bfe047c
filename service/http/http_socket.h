// HttpSocket: a connection's bytes, with TLS between them and the wire where that is asked for.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_SOCKET_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_SOCKET_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>  // in front of Asio, which needs and does not include it

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tidepool::service {

// A stream as Asio's and Beast's operations take it, for the socket's executor alone. One reading
// and one writing operation may run at a time.
class HttpSocket {
 public:
  using Tcp = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;
  using executor_type = Tcp::executor_type;

  // `context` is null for plain text.
  HttpSocket(Tcp tcp, const std::shared_ptr<ssl_ctx_st>& context);

  executor_type get_executor() { return tcp_.get_executor(); }
  bool is_tls() const { return tls_.has_value(); }
  // What lies below TLS, if there is any.
  Tcp& tcp() { return tcp_; }
  void Close();

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (is_tls()) {
      tls_->async_read_some(buffers, std::forward<Handler>(handler));
    } else {
      tcp_.async_read_some(buffers, std::forward<Handler>(handler));
    }
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (is_tls()) {
      tls_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      tcp_.async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

  // Requires of both: is_tls(). `handler(error)`.
  template <typename Handler>
  void AsyncHandshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Tells the client that nothing more comes, and waits for it to say the same.
  template <typename Handler>
  void AsyncShutdown(Handler handler) {
    tls_->async_shutdown(std::move(handler));
  }

 private:
  Tcp tcp_;
  std::optional<boost::asio::ssl::stream<Tcp&>> tls_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_SOCKET_H_
