#include "service/http/http_connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace tidepool::service {

HttpConnection::HttpConnection(HttpSocket::Tcp socket, HttpConnections* all)
    : all_(all),
      begun_(all->clock->Monotonic()),
      socket_(std::move(socket), all->TlsContext()),
      deadline_(socket_.get_executor()),
      reader_(&socket_, &deadline_,
              {.limits = &all->limits,
               .handler = all->handler,
               .open_body_bytes = &all->open_body_bytes}),
      watch_(&socket_, reader_.buffer()),
      writer_(&socket_, &deadline_, all->limits.write_timeout),
      lingering_(&socket_, &deadline_) {}

HttpConnection::~HttpConnection() { Leave(); }

void HttpConnection::Leave() {
  base::MutexLock lock(&all_->mutex);
  all_->live.erase(this);
  all_->changed.NotifyAll();
}

void HttpConnection::Start() {
  {
    base::MutexLock lock(&all_->mutex);
    all_->live[this] = weak_from_this();
  }
  Post([self = shared_from_this()] {
    self->socket_.is_tls() ? self->ShakeHands() : self->WaitForRequest();
  });
}

void HttpConnection::ShakeHands() {
  state_ = State::kShakingHands;
  deadline_.Set(all_->limits.header_timeout, [self = shared_from_this()] { self->Close(); });
  socket_.AsyncHandshake([self = shared_from_this()](const HttpSocket::Error& error) {
    if (self->state_ != State::kShakingHands) return;
    if (error) return self->Close();
    // The age must begin after the handshake, which checks the certificate.
    self->begun_ = self->all_->clock->Monotonic();
    self->WaitForRequest();
  });
}

void HttpConnection::Drain() {
  Post([self = shared_from_this()] {
    if (self->state_ == State::kIdle || self->state_ == State::kShakingHands) self->Close();
  });
}

void HttpConnection::Abort() {
  Post([self = shared_from_this()] { self->OnDisconnect(); });
}

void HttpConnection::Post(std::function<void()> task) {
  boost::asio::post(socket_.get_executor(), std::move(task));
}

absl::Duration HttpConnection::AgeLeft() const {
  return all_->limits.max_connection_age - (all_->clock->Monotonic() - begun_);
}

bool HttpConnection::IsLastResponse() const {
  return all_->draining || AgeLeft() <= absl::ZeroDuration();
}

void HttpConnection::WaitForRequest() {
  if (state_ == State::kClosed) return;
  state_ = State::kIdle;
  reader_.Reset();
  if (all_->draining) return Close();
  if (reader_.buffer()->size() > 0) return OnBytes();
  // While a wait over TLS is pending, it reads into the buffer. So the buffer must not be changed.
  if (!watch_.waiting()) reader_.buffer()->shrink_to_fit();
  deadline_.Set(std::min(all_->limits.idle_timeout, AgeLeft()),
                [self = shared_from_this()] { self->Close(); });
  watch_.Expect(PeerWatch::Expected::kRequest);
  watch_.Start(shared_from_this());
}

void HttpConnection::OnBytes() {
  state_ = State::kReading;
  watch_.Expect(PeerWatch::Expected::kNothing);
  reader_.Read(shared_from_this());
}

void HttpConnection::BeginResponse(ResponseFraming framing) {
  state_ = State::kBusy;
  watch_.Expect(PeerWatch::Expected::kDisconnect);
  writer_.Begin(std::move(framing));
}

void HttpConnection::OnRequest(HttpRequest request, ResponseFraming framing) {
  if (state_ != State::kReading) return;  // the connection was closed in the meantime
  BeginResponse(std::move(framing));
  watch_.Start(shared_from_this());
  all_->handler->Handle(std::move(request), shared_from_this());
}

void HttpConnection::OnRefused(HttpResponse response, ResponseFraming framing) {
  if (state_ != State::kReading) return;  // the connection was closed in the meantime
  BeginResponse(std::move(framing));
  Answer(std::move(response));
}

void HttpConnection::Answer(HttpResponse response) {
  if (state_ != State::kBusy) return;
  if (IsLastResponse()) writer_.CloseAfter();
  all_->handler->OnResponse(reader_.head(), response);
  writer_.Answer(std::move(response), shared_from_this());
}

void HttpConnection::BeginStream(HttpResponse head) {
  if (state_ != State::kBusy) return;
  if (IsLastResponse()) writer_.CloseAfter();
  all_->handler->OnResponse(reader_.head(), head);
  writer_.BeginStream(head, shared_from_this());
}

void HttpConnection::Write(std::string bytes, std::function<void()> taken) {
  if (state_ != State::kBusy) return;
  writer_.Write(bytes, std::move(taken), shared_from_this());
}

void HttpConnection::EndStream() {
  if (state_ != State::kBusy) return;
  writer_.EndStream(shared_from_this());
}

void HttpConnection::OnGone(std::function<void()> callback) {
  if (state_ == State::kBusy) {
    on_gone_ = std::move(callback);
  } else {
    callback();
  }
}

void HttpConnection::OnSent() {
  on_gone_ = nullptr;
  if (writer_.keep_alive() && !IsLastResponse()) return WaitForRequest();
  state_ = State::kLingering;
  watch_.Expect(PeerWatch::Expected::kNothing);
  reader_.Reset();
  lingering_.Begin(shared_from_this());
}

void HttpConnection::OnDisconnect() {
  Close();
  if (const auto gone = std::exchange(on_gone_, nullptr)) gone();
}

void HttpConnection::Close() {
  state_ = State::kClosed;
  deadline_.Clear();
  watch_.Expect(PeerWatch::Expected::kNothing);
  writer_.Stop();
  lingering_.Stop();
  socket_.Close();
  Leave();  // leave the list now, although holders of the exchange may keep this object alive
}

}  // namespace tidepool::service
