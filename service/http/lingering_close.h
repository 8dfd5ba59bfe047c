// LingeringClose: closes an HTTP connection after its last response, without losing that response.
#ifndef TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_
#define TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "service/http/http_deadline.h"
#include "service/http/http_socket.h"

namespace tidepool::service {

// Use it on the socket's executor only. If a socket is closed while it has unread bytes, the kernel
// resets the connection, and the client may lose the response. So this object reads and discards
// what the client still sends, for a short time (RFC 9112, 9.6).
class LingeringClose {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The socket may be closed now.
    virtual void OnLingered() = 0;
  };

  // Both pointers must outlive this object.
  LingeringClose(HttpSocket* socket, HttpDeadline* deadline)
      : socket_(socket), deadline_(deadline) {}

  // Begins to close the connection. Call it once. `owner` must own this object. `owner` is kept
  // alive until OnLingered is called.
  void Begin(std::shared_ptr<Owner> owner);
  // Call it when the socket was closed. OnLingered is not called any more.
  void Stop() { running_ = false; }

 private:
  void EndSending(std::shared_ptr<Owner> owner);
  void ReadRest(std::shared_ptr<Owner> owner);

  HttpSocket* const socket_;
  HttpDeadline* const deadline_;
  bool running_ = false;
  std::string discarded_;  // the bytes that were read last
  int64_t read_bytes_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_LINGERING_CLOSE_H_
