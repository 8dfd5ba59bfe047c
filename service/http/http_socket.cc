#include "service/http/http_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/ssl/context.hpp>

namespace tidepool::service {
namespace {

namespace asio = boost::asio;

// The kernel doubles this size. So at most 256 KiB are buffered between a stream and its client.
constexpr int kSendBufferBytes = 128 << 10;

void Tune(HttpSocket::Tcp* socket) {
  // an error is harmless, because these options only affect speed
  boost::system::error_code ignored;
  socket->set_option(asio::ip::tcp::no_delay(true), ignored);
  socket->set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  // Detects clients that have disappeared without closing the connection.
  socket->set_option(asio::socket_base::keep_alive(true), ignored);
  const int idle_seconds = 60, interval_seconds = 15;
  setsockopt(socket->native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(int));
  setsockopt(socket->native_handle(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof(int));
}

}  // namespace

HttpSocket::HttpSocket(Tcp tcp, const std::shared_ptr<ssl_ctx_st>& context) : tcp_(std::move(tcp)) {
  Tune(&tcp_);
  if (context == nullptr) return;
  SSL_CTX_up_ref(context.get());
  asio::ssl::context one_more_owner(context.get());
  tls_.emplace(tcp_, one_more_owner);
}

void HttpSocket::Close() {
  Error ignored;
  tcp_.close(ignored);
}

}  // namespace tidepool::service
