// LingeringClose: the end of an HTTP connection after its last response.
#ifndef TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_
#define TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "service/http/http_deadline.h"
#include "service/http/http_socket.h"

namespace tidepool::service {

// Used on the socket's executor only. If a socket is closed with unread bytes, the kernel resets
// the connection, and the client may lose the response. So this reads what the client still sends,
// for a short time (RFC 9112, 9.6).
class LingeringClose {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The socket may be closed.
    virtual void OnLingered() = 0;
  };

  // Both outlive this object.
  LingeringClose(HttpSocket* socket, HttpDeadline* deadline)
      : socket_(socket), deadline_(deadline) {}

  // Call it once. `owner` must own this object, and is kept until the end.
  void Begin(std::shared_ptr<Owner> owner);
  // The socket was closed. Does not call OnLingered any more.
  void Stop() { running_ = false; }

 private:
  void EndSending(std::shared_ptr<Owner> owner);
  void ReadRest(std::shared_ptr<Owner> owner);

  HttpSocket* const socket_;
  HttpDeadline* const deadline_;
  bool running_ = false;
  std::string discarded_;  // buffer for what is read
  int64_t read_bytes_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_
