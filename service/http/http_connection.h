// HttpConnection: implements HTTP/1.1 (RFC 9112) on one socket, with Boost.Beast's parser. It
// serves one request at a time. A pipelined request waits until the response before it was sent.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "service/auth/tls_identity.h"
#include "service/http/http_deadline.h"
#include "service/http/http_exchange.h"
#include "service/http/http_limits.h"
#include "service/http/http_socket.h"
#include "service/http/lingering_close.h"
#include "service/http/peer_watch.h"
#include "service/http/request_reader.h"
#include "service/http/response_writer.h"

namespace tidepool::service {

class HttpConnection;

// The state that all connections of a server share. The state outlives the connections.
// Thread-safe.
struct HttpConnections {
  HttpLimits limits;
  HttpHandler* handler = nullptr;
  const WatchedFiles<TlsIdentity>* tls = nullptr;  // null if connections are in plain text
  const base::Clock* clock = nullptr;              // measures the age of connections
  std::atomic<int64_t> open_body_bytes = 0;
  std::atomic<bool> draining = false;

  // Returns the TLS context for a new connection, or null for plain text.
  std::shared_ptr<ssl_ctx_st> TlsContext() const {
    return tls == nullptr ? nullptr : tls->Get()->server_context;
  }

  base::Mutex mutex;
  base::CondVar changed;
  std::map<HttpConnection*, std::weak_ptr<HttpConnection>> live TIDEPOOL_GUARDED_BY(mutex);
};

// All state is used only on the socket's executor, which is a strand. A connection waits for a
// request, reads it, and is busy until the response was sent. Each of these steps is done by one of
// the members below.
class HttpConnection final : public HttpExchange,
                             public RequestReader::Owner,
                             public ResponseWriter::Owner,
                             public PeerWatch::Owner,
                             public LingeringClose::Owner,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpSocket::Tcp socket, HttpConnections* all);
  ~HttpConnection() override;

  // These three functions are thread-safe.
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
  enum class State : uint8_t { kShakingHands, kIdle, kReading, kBusy, kLingering, kClosed };

  // The members below call these functions.
  void OnBytes() override;
  void OnRequest(HttpRequest request, ResponseFraming framing) override;
  void OnRefused(HttpResponse response, ResponseFraming framing) override;
  void OnNoRequest() override { WaitForRequest(); }
  void OnReadFailed() override { Close(); }
  void OnSent() override;
  void OnDisconnect() override;
  void OnLingered() override { Close(); }

  void ShakeHands();
  void WaitForRequest();
  void BeginResponse(ResponseFraming framing);
  // Returns how long the connection still accepts new requests.
  absl::Duration AgeLeft() const;
  bool IsLastResponse() const;
  void Close();
  // Removes this connection from the list of open connections.
  void Leave();

  HttpConnections* const all_;
  absl::Duration begun_;  // when the handshake succeeded, on the monotonic clock
  State state_ = State::kIdle;
  std::function<void()> on_gone_;
  HttpSocket socket_;
  HttpDeadline deadline_;
  RequestReader reader_;
  PeerWatch watch_;
  ResponseWriter writer_;
  LingeringClose lingering_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_CONNECTION_H_
