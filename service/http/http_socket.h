// HttpSocket: the byte stream of a connection, in plain text or over TLS.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_SOCKET_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_SOCKET_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tidepool::service {

// A stream for the operations of Asio and Beast. Use it on the socket's executor only. At most one
// read and one write may run at the same time.
class HttpSocket {
 public:
  using Tcp = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;
  using executor_type = Tcp::executor_type;

  // `context` is null for plain text.
  HttpSocket(Tcp tcp, const std::shared_ptr<ssl_ctx_st>& context);

  executor_type get_executor() { return tcp_.get_executor(); }
  bool is_tls() const { return tls_.has_value(); }
  // Returns the TCP socket. With TLS, this is the socket below the TLS stream.
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

  // AsyncHandshake and AsyncShutdown require is_tls(), and call `handler(error)` at the end.
  template <typename Handler>
  void AsyncHandshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Sends TLS's close_notify alert and waits for the client's alert.
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
