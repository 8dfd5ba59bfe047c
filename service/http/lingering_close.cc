#include "service/http/lingering_close.h"

#include <boost/asio/buffer.hpp>
#include <utility>

#include "absl/time/time.h"

namespace tidepool::service {
namespace {

using Error = HttpSocket::Error;

constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr int64_t kLingerBytes = 1 << 20;
constexpr size_t kReadBytes = 4096;

}  // namespace

void LingeringClose::Begin(std::shared_ptr<Owner> owner) {
  running_ = true;
  deadline_->Set(kLingerTime, [owner] { owner->OnLingered(); });
  if (!socket_->is_tls()) return EndSending(std::move(owner));
  socket_->AsyncShutdown([this, owner = std::move(owner)](const Error&) mutable {
    if (running_) EndSending(std::move(owner));
  });
}

void LingeringClose::EndSending(std::shared_ptr<Owner> owner) {
  Error ignored;
  socket_->tcp().shutdown(HttpSocket::Tcp::shutdown_send, ignored);
  discarded_.resize(kReadBytes);
  ReadRest(std::move(owner));
}

void LingeringClose::ReadRest(std::shared_ptr<Owner> owner) {
  const auto buffer = boost::asio::buffer(discarded_);
  socket_->tcp().async_read_some(
      buffer, [this, owner = std::move(owner)](const Error& error, size_t bytes) mutable {
        if (!running_) return;
        read_bytes_ += static_cast<int64_t>(bytes);
        if (error || read_bytes_ > kLingerBytes) return owner->OnLingered();
        ReadRest(std::move(owner));
      });
}

}  // namespace tidepool::service
