// HttpConnection: HTTP/1.1 on one socket (RFC 9112), with Boost.Beast's parser. Requests are served
// one at a time, including pipelined ones.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // in front of Asio, which needs and does not include it
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "service/auth/tls_identity.h"
#include "service/base/write_timeouts.h"
#include "service/http/http_exchange.h"
#include "service/http/http_socket.h"

namespace tidepool::service {

struct HttpLimits {
  int64_t max_connections = 8192;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 32 << 20;
  int64_t max_open_body_bytes = 256 << 20;  // memory for incoming bodies of all connections
  // This part of each body does not count in max_open_body_bytes, so slow senders of long bodies
  // cannot block others. So max_connections times this is needed in addition.
  int64_t small_body_bytes = 32 << 10;
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Minutes(2);
  absl::Duration idle_timeout = absl::Seconds(75);
  absl::Duration write_timeout = kTakenWithin;  // time in which the client takes no byte
  // An older connection accepts no new requests, and closes when it is idle.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

class HttpConnection;

// Thread-safe. State that the connections of a server share. Outlives them.
struct HttpConnections {
  HttpLimits limits;
  HttpHandler* handler = nullptr;
  const WatchedFiles<TlsIdentity>* tls = nullptr;  // null: plain text
  const base::Clock* clock = nullptr;              // for the ages of connections
  std::atomic<int64_t> open_body_bytes = 0;
  std::atomic<bool> draining = false;

  // For new connections. Null: plain text.
  std::shared_ptr<ssl_ctx_st> TlsContext() const {
    return tls == nullptr ? nullptr : tls->Get()->server_context;
  }

  base::Mutex mutex;
  base::CondVar changed;
  std::map<HttpConnection*, std::weak_ptr<HttpConnection>> live TIDEPOOL_GUARDED_BY(mutex);
};

// All state is used on the socket's executor only, a strand.
class HttpConnection final : public HttpExchange,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpSocket::Tcp socket, HttpConnections* all);
  ~HttpConnection() override;

  // Thread-safe.
  void Start();
  // Closes an idle connection now, and a busy one after its response.
  void Drain();
  // Closes the connection now.
  void Abort();

  void Post(std::function<void()> task) override;
  void Answer(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void Write(std::string bytes, std::function<void()> taken) override;
  void EndStream() override;
  void OnGone(std::function<void()> callback) override;

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::system::error_code;
  enum class State : uint8_t { kShakingHands, kIdle, kReading, kBusy, kLingering, kClosed };

  void ShakeHands();
  void WaitForRequest();
  void WatchReadable();
  void WatchTls();
  void OnTlsBytes(const Error& error, size_t bytes);
  void OnReadable(const Error& error);
  // Reads a header, after skipping empty lines before it (RFC 9112, 2.2).
  void ReadHeader();
  void ReadStart();
  void TakeHead();
  void OnHeader(const Error& error);
  // The fault of a header that could be parsed, or none.
  struct HeaderFault {
    int status = 400;
    std::string message;
  };
  std::optional<HeaderFault> FaultOfHeader() const;
  void ReadBody();
  void OnBody(const Error& error);
  bool AccountBody(int64_t bytes);
  void Dispatch();
  void OnReadError(const Error& error);
  // Without keep_alive, the connection closes after the response, and the rest of the request is
  // not read.
  void Refuse(HttpResponse response, bool keep_alive);
  void Refuse(int status, const std::string& message, const std::string& code);

  // Time until it accepts no new requests.
  absl::Duration AgeLeft() const;
  bool IsLastAnswer() const;
  std::string HeadText(const HttpResponse& response, int64_t content_length) const;
  void StartWrite();
  void OnWrote(const Error& error);
  void EndExchange();
  void Linger();
  void EndSending();
  void ReadRest();
  void LeaveClient();
  void Close();
  // Stops counting as open.
  void Leave();
  void SetDeadline(absl::Duration time);
  void ClearDeadline();
  void OnDeadline();

  HttpConnections* const all_;
  absl::Duration begun_;  // after a successful handshake; on the monotonic clock
  HttpSocket socket_;
  boost::asio::steady_timer deadline_;
  int64_t deadlines_ = 0;  // number of the current deadline; older timers are ignored
  boost::beast::flat_buffer buffer_;
  State state_ = State::kIdle;
  bool watching_ = false;
  bool timed_out_ = false;

  // The request that is being read or served.
  std::optional<Parser> parser_;
  HttpHead head_;
  HttpHeaders common_headers_;
  int64_t body_accounted_ = 0;
  bool is_head_ = false;
  bool chunked_ = false;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
  std::function<void()> on_gone_;

  // Bytes that are being written, and the bytes after them.
  std::string writing_, pending_;
  std::vector<std::function<void()>> writing_taken_, pending_taken_;
  bool write_running_ = false;
  bool answer_complete_ = false;
  int64_t lingered_bytes_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_
