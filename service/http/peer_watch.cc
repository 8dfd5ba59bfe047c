#include "service/http/peer_watch.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace tidepool::service {
namespace {

constexpr size_t kReadBytes = 4096;

}  // namespace

void PeerWatch::Start(std::shared_ptr<Owner> owner) {
  if (waiting_) return;
  if (socket_->is_tls()) return StartTls(std::move(owner));
  waiting_ = true;
  socket_->tcp().async_wait(boost::asio::socket_base::wait_read,
                            [this, owner = std::move(owner)](const Error& error) mutable {
                              OnReadable(std::move(owner), error);
                            });
}

void PeerWatch::OnReadable(std::shared_ptr<Owner> owner, const Error& error) {
  waiting_ = false;
  if (error || expected_ == Expected::kNothing) return;
  if (expected_ == Expected::kRequest) return owner->OnBytes();
  char byte = 0;
  const ssize_t got = recv(socket_->tcp().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // the client sent the next request early (pipelining); it stays in the buffer
  if (got > 0) return;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return Start(std::move(owner));
  }
  owner->OnDisconnect();
}

// With TLS, readable bytes may be messages of the TLS protocol and not data of the client. Only a
// read shows which they are.
void PeerWatch::StartTls(std::shared_ptr<Owner> owner) {
  if (buffer_->size() > 0) return;
  waiting_ = true;
  socket_->async_read_some(buffer_->prepare(kReadBytes),
                           [this, owner = std::move(owner)](const Error& error, size_t bytes) {
                             OnTlsBytes(owner.get(), error, bytes);
                           });
}

void PeerWatch::OnTlsBytes(Owner* owner, const Error& error, size_t bytes) {
  waiting_ = false;
  if (expected_ == Expected::kNothing) return;
  if (error) return owner->OnDisconnect();
  buffer_->commit(bytes);
  if (expected_ == Expected::kRequest) owner->OnBytes();
}

}  // namespace tidepool::service
