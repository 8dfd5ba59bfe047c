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

// Used on the socket's executor only. While the socket takes bytes, later ones are collected and
// sent together. Each function that sends keeps `owner`, which must own this object, until the
// socket has taken the bytes.
class ResponseWriter {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The socket has taken the whole response.
    virtual void OnSent() = 0;
    // The client has disconnected, or has taken no byte for too long.
    virtual void OnDisconnect() = 0;
  };

  // Both outlive this object. The deadline is used while bytes are sent.
  ResponseWriter(HttpSocket* socket, HttpDeadline* deadline, absl::Duration write_timeout)
      : socket_(socket), deadline_(deadline), write_timeout_(write_timeout) {}

  // Begins a response. Exactly one of Answer and BeginStream follows.
  void Begin(ResponseFraming framing);
  // The connection closes after this response. Call it before Answer or BeginStream.
  void CloseAfter() { framing_.keep_alive = false; }
  bool keep_alive() const { return framing_.keep_alive; }

  // As in HttpExchange.
  void Answer(HttpResponse response, std::shared_ptr<Owner> owner);
  void BeginStream(const HttpResponse& head, std::shared_ptr<Owner> owner);
  void Write(absl::string_view bytes, std::function<void()> taken, std::shared_ptr<Owner> owner);
  void EndStream(std::shared_ptr<Owner> owner);

  // The socket was closed. Drops what was not sent, and does not call the owner any more.
  void Stop();

 private:
  void StartWrite(std::shared_ptr<Owner> owner);
  void OnWrote(std::shared_ptr<Owner> owner, const HttpSocket::Error& error);

  HttpSocket* const socket_;
  HttpDeadline* const deadline_;
  const absl::Duration write_timeout_;
  ResponseFraming framing_;
  // Bytes that are being written, and the bytes after them.
  std::string writing_, pending_;
  std::vector<std::function<void()>> writing_taken_, pending_taken_;
  bool write_running_ = false;
  bool complete_ = false;  // nothing follows pending_
  bool stopped_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_RESPONSE_WRITER_H_
