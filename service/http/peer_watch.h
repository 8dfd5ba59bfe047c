// PeerWatch: detects that the client of an HTTP connection sends a request or disconnects.
#ifndef TIDEPOOL_SERVICE_HTTP_PEER_WATCH_H_
#define TIDEPOOL_SERVICE_HTTP_PEER_WATCH_H_

#include <boost/beast/core/flat_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "service/http/http_socket.h"

namespace tidepool::service {

// Use it on the socket's executor only. At most one wait is pending. A wait can last longer than
// the request during which it began. So the owner calls Expect to say which event it wants to see
// now.
class PeerWatch {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The first bytes of a request have arrived.
    virtual void OnBytes() = 0;
    virtual void OnDisconnect() = 0;
  };
  // Which event is reported to the owner.
  enum class Expected : uint8_t { kNothing, kRequest, kDisconnect };

  // Both pointers must outlive this object. With TLS, bytes of the next request are read into
  // `buffer`.
  PeerWatch(HttpSocket* socket, boost::beast::flat_buffer* buffer)
      : socket_(socket), buffer_(buffer) {}

  void Expect(Expected expected) { expected_ = expected; }
  // Starts a wait, unless one is pending. With TLS, no wait starts while the buffer contains bytes
  // of the next request. Then a disconnect is detected only after that request. `owner` must own
  // this object. `owner` is kept alive until the wait ends.
  void Start(std::shared_ptr<Owner> owner);
  bool waiting() const { return waiting_; }

 private:
  using Error = HttpSocket::Error;

  void StartTls(std::shared_ptr<Owner> owner);
  void OnReadable(std::shared_ptr<Owner> owner, const Error& error);
  void OnTlsBytes(Owner* owner, const Error& error, size_t bytes);

  HttpSocket* const socket_;
  boost::beast::flat_buffer* const buffer_;
  Expected expected_ = Expected::kNothing;
  bool waiting_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_PEER_WATCH_H_
