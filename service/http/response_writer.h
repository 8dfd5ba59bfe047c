// ResponseWriter: sends the responses of an HTTP connection, one after the other.
#ifndef TIDEPOOL_SERVICE_HTTP_RESPONSE_WRITER_H_
#define TIDEPOOL_SERVICE_HTTP_RESPONSE_WRITER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "service/http/http_deadline.h"
#include "service/http/http_exchange.h"
#include "service/http/http_socket.h"
#include "service/http/response_framing.h"

namespace tidepool::service {

// Use it on the socket's executor only. While a write is running, further bytes are collected. When
// the write ends, they are sent together. `owner` must own this object. Each function that sends
// keeps `owner` alive until the socket has taken the bytes.
class ResponseWriter {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The socket has taken the whole response.
    virtual void OnSent() = 0;
    // The client has disconnected, or took no byte within the write timeout.
    virtual void OnDisconnect() = 0;
  };

  // Both pointers must outlive this object. `deadline` is in use while bytes are sent.
  ResponseWriter(HttpSocket* socket, HttpDeadline* deadline, absl::Duration write_timeout)
      : socket_(socket), deadline_(deadline), write_timeout_(write_timeout) {}

  // Begins a response. Call exactly one of Answer and BeginStream after it.
  void Begin(ResponseFraming framing);
  // The connection will close after this response. Call this before Answer or BeginStream.
  void CloseAfter() { framing_.keep_alive = false; }
  bool keep_alive() const { return framing_.keep_alive; }

  // These do the same as in HttpExchange.
  void Answer(HttpResponse response, std::shared_ptr<Owner> owner);
  void BeginStream(const HttpResponse& head, std::shared_ptr<Owner> owner);
  void Write(absl::string_view bytes, std::function<void()> taken, std::shared_ptr<Owner> owner);
  void EndStream(std::shared_ptr<Owner> owner);

  // Call it when the socket was closed. Discards the bytes that were not sent, and does not call
  // the owner any more.
  void Stop();

 private:
  void StartWrite(std::shared_ptr<Owner> owner);
  void OnWrote(std::shared_ptr<Owner> owner, const HttpSocket::Error& error);

  HttpSocket* const socket_;
  HttpDeadline* const deadline_;
  const absl::Duration write_timeout_;
  ResponseFraming framing_;
  // The bytes that the running write sends, and the bytes that the next write will send.
  std::string writing_, pending_;
  std::vector<std::function<void()>> writing_taken_, pending_taken_;
  bool write_running_ = false;
  bool complete_ = false;  // the response ends with pending_
  bool stopped_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_RESPONSE_WRITER_H_
