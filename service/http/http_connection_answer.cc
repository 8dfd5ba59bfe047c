// The part of HttpConnection that sends responses, until the end of the connection.
#include <sys/socket.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http/status.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "service/http/http_connection.h"

namespace tidepool::service {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr int64_t kLingerBytes = 1 << 20;

std::string Chunk(const std::string& bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace

absl::Duration HttpConnection::AgeLeft() const {
  return all_->limits.max_connection_age - (all_->clock->Monotonic() - begun_);
}

bool HttpConnection::IsLastAnswer() const {
  return all_->draining || AgeLeft() <= absl::ZeroDuration();
}

std::string HttpConnection::HeadText(const HttpResponse& response, int64_t content_length) const {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string text = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
      "\r\n");
  if (!response.content_type.empty()) {
    absl::StrAppend(&text, "Content-Type: ", response.content_type, "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  for (const auto& [name, value] : common_headers_) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (content_length >= 0) absl::StrAppend(&text, "Content-Length: ", content_length, "\r\n");
  if (chunked_) absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n");
  if (!keep_alive_) absl::StrAppend(&text, "Connection: close\r\n");
  if (keep_alive_ && http_1_0_) absl::StrAppend(&text, "Connection: keep-alive\r\n");
  return absl::StrCat(text, "\r\n");
}

void HttpConnection::Answer(HttpResponse response) {
  if (state_ != State::kBusy) return;
  if (IsLastAnswer()) keep_alive_ = false;
  chunked_ = false;
  all_->handler->OnResponse(head_, response);
  const bool no_content = response.status == 204;
  pending_ = HeadText(response, no_content ? -1 : static_cast<int64_t>(response.body.size()));
  if (!is_head_) pending_ += response.body;
  pending_taken_.push_back([held = std::move(response.held)] {});
  answer_complete_ = true;
  StartWrite();
}

void HttpConnection::BeginStream(HttpResponse head) {
  if (state_ != State::kBusy) return;
  chunked_ = !http_1_0_;
  all_->handler->OnResponse(head_, head);
  if (IsLastAnswer() || http_1_0_) keep_alive_ = false;
  pending_ = HeadText(head, -1);
  StartWrite();
}

void HttpConnection::Write(std::string bytes, std::function<void()> taken) {
  if (state_ != State::kBusy) return;
  if (!bytes.empty()) pending_ += chunked_ ? Chunk(bytes) : bytes;
  pending_taken_.push_back(std::move(taken));
  StartWrite();
}

void HttpConnection::EndStream() {
  if (state_ != State::kBusy) return;
  if (chunked_) pending_ += "0\r\n\r\n";
  answer_complete_ = true;
  StartWrite();
}

void HttpConnection::OnGone(std::function<void()> callback) {
  if (state_ == State::kBusy) {
    on_gone_ = std::move(callback);
  } else {
    callback();
  }
}

void HttpConnection::StartWrite() {
  if (write_running_) return;
  if (pending_.empty() && pending_taken_.empty()) {
    if (answer_complete_) EndExchange();
    return;
  }
  write_running_ = true;
  writing_ = std::exchange(pending_, "");
  writing_taken_ = std::exchange(pending_taken_, {});
  SetDeadline(all_->limits.write_timeout);
  asio::async_write(
      socket_, asio::buffer(writing_),
      [self = shared_from_this()](const Error& error, size_t) { self->OnWrote(error); });
}

void HttpConnection::OnWrote(const Error& error) {
  write_running_ = false;
  if (state_ != State::kBusy) return;
  if (error) return LeaveClient();
  ClearDeadline();
  for (const auto& taken : std::exchange(writing_taken_, {})) {
    if (taken) taken();
  }
  StartWrite();
}

void HttpConnection::EndExchange() {
  answer_complete_ = false;
  on_gone_ = nullptr;
  writing_ = std::string();
  if (keep_alive_ && !IsLastAnswer()) return WaitForRequest();
  Linger();
}

// If a socket is closed with unread bytes, the kernel resets the connection, and the client may
// lose the response. So read what the client still sends, for a short time.
void HttpConnection::Linger() {
  state_ = State::kLingering;
  lingered_bytes_ = 0;
  parser_.reset();
  AccountBody(0);
  SetDeadline(kLingerTime);
  if (!socket_.is_tls()) return EndSending();
  socket_.AsyncShutdown([self = shared_from_this()](const Error&) {
    if (self->state_ == State::kLingering) self->EndSending();
  });
}

void HttpConnection::EndSending() {
  Error ignored;
  socket_.tcp().shutdown(HttpSocket::Tcp::shutdown_send, ignored);
  ReadRest();
}

void HttpConnection::ReadRest() {
  writing_.resize(4096);
  socket_.tcp().async_read_some(asio::buffer(writing_),
                                [self = shared_from_this()](const Error& error, size_t bytes) {
                                  self->lingered_bytes_ += static_cast<int64_t>(bytes);
                                  if (error || self->lingered_bytes_ > kLingerBytes) {
                                    self->Close();
                                  } else if (self->state_ == State::kLingering) {
                                    self->ReadRest();
                                  }
                                });
}

}  // namespace tidepool::service
