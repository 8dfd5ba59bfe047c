// PeerWatch: notices that the client of an HTTP connection sends a request, or disconnects.
#ifndef TIDEPOOL_SERVICE_HTTP_PEER_WATCH_H_
#define TIDEPOOL_SERVICE_HTTP_PEER_WATCH_H_

#include <boost/beast/core/flat_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "service/http/http_socket.h"

namespace tidepool::service {

// Used on the socket's executor only. At most one wait is pending. A wait can outlive the request
// during which it began. Expect sets how to react to its end.
class PeerWatch {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The first bytes of a request arrived.
    virtual void OnBytes() = 0;
    virtual void OnDisconnect() = 0;
  };
  // What is reported to the owner.
  enum class Expected : uint8_t { kNothing, kRequest, kDisconnect };

  // Both outlive this object. With TLS, bytes of the next request are read into `buffer`.
  PeerWatch(HttpSocket* socket, boost::beast::flat_buffer* buffer)
      : socket_(socket), buffer_(buffer) {}

  void Expect(Expected expected) { expected_ = expected; }
  // Starts to wait, unless a wait is pending. With TLS, it does not wait while the buffer has
  // bytes: then a disconnect is noticed after the request that they belong to. `owner` must own
  // this object, and is kept until the wait ends.
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
