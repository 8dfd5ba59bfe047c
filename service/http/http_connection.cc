#include "service/http/http_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/utf8.h"
#include "service/http/http_error.h"
#include "service/http/request_path.h"

namespace tidepool::service {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kWatchBytes = 4096;

HttpResponse Complaint(int status, const std::string& message, const std::string& code) {
  HttpResponse response;
  response.status = status;
  response.body =
      DumpJson(ErrorJson({.status = status,
                          .message = message,
                          .type = status < 500 ? "invalid_request_error" : "server_error",
                          .code = code}));
  return response;
}

// Several headers with one name mean the same as one with all their values (RFC 9110, 5.3).
std::string JoinedField(const http::fields& header, const char* name) {
  std::string joined;
  const auto [begin, end] = header.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    absl::StrAppend(&joined, joined.empty() ? "" : ",",
                    absl::string_view(field->value().data(), field->value().size()));
  }
  return joined;
}

}  // namespace

HttpResponse ErrorResponse(const absl::Status& status) {
  const HttpError error = ToHttpError(status);
  HttpResponse response;
  response.status = error.status;
  response.body = DumpJson(ErrorJson(error));
  if (error.retry_after_s.has_value()) {
    response.headers.emplace_back("Retry-After", absl::StrCat(*error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpConnection::HttpConnection(HttpSocket::Tcp socket, HttpConnections* all)
    : all_(all),
      begun_(all->clock->Monotonic()),
      socket_(std::move(socket), all->TlsContext()),
      deadline_(socket_.get_executor()),
      buffer_(static_cast<size_t>(all->limits.max_header_bytes) + (64 << 10)) {}

HttpConnection::~HttpConnection() {
  all_->open_body_bytes -= body_accounted_;
  Leave();
}

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
  SetDeadline(all_->limits.header_timeout);
  socket_.AsyncHandshake([self = shared_from_this()](const Error& error) {
    if (self->state_ != State::kShakingHands) return;
    if (error) return self->Close();
    // the connection's age begins with the certificate check
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
  Post([self = shared_from_this()] { self->LeaveClient(); });
}

void HttpConnection::Post(std::function<void()> task) {
  asio::post(socket_.get_executor(), std::move(task));
}

void HttpConnection::WaitForRequest() {
  if (state_ == State::kClosed) return;
  state_ = State::kIdle;
  parser_.reset();
  head_ = {};
  common_headers_.clear();
  if (all_->draining) return Close();
  if (buffer_.size() > 0) return ReadHeader();
  if (!watching_) buffer_.shrink_to_fit();
  SetDeadline(std::min(all_->limits.idle_timeout, AgeLeft()));
  WatchReadable();
}

// Waits for the first bytes of the next request. While a request is served, detects a disconnect.
void HttpConnection::WatchReadable() {
  if (watching_) return;
  if (socket_.is_tls()) return WatchTls();
  watching_ = true;
  socket_.tcp().async_wait(
      asio::socket_base::wait_read,
      [self = shared_from_this()](const Error& error) { self->OnReadable(error); });
}

// With TLS, readable bytes may be protocol messages instead of client data: only reading tells.
void HttpConnection::WatchTls() {
  if (buffer_.size() > 0) return;  // a pipelined request; a disconnect is detected after it
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kWatchBytes),
                          [self = shared_from_this()](const Error& error, size_t bytes) {
                            self->OnTlsBytes(error, bytes);
                          });
}

void HttpConnection::OnTlsBytes(const Error& error, size_t bytes) {
  watching_ = false;
  if (state_ != State::kIdle && state_ != State::kBusy) return;
  if (error) return LeaveClient();
  buffer_.commit(bytes);
  if (state_ == State::kIdle) ReadHeader();
}

void HttpConnection::OnReadable(const Error& error) {
  watching_ = false;
  if (error || state_ == State::kClosed) return;
  if (state_ == State::kIdle) return ReadHeader();
  if (state_ != State::kBusy) return;
  char byte = 0;
  const ssize_t got = recv(socket_.tcp().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return;  // a pipelined request, which stays in the buffer
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return WatchReadable();
  }
  LeaveClient();
}

void HttpConnection::ReadHeader() {
  state_ = State::kReading;
  timed_out_ = false;
  keep_alive_ = false;
  is_head_ = false;
  http_1_0_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(all_->limits.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(all_->limits.max_body_bytes));
  SetDeadline(all_->limits.header_timeout);
  ReadStart();
}

void HttpConnection::ReadStart() {
  const bool had_bytes = buffer_.size() > 0;
  const auto starts_with = [this](absl::string_view line) {
    const absl::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    return absl::StartsWith(bytes, line);
  };
  while (starts_with("\r\n")) buffer_.consume(2);
  const bool half_a_line = buffer_.size() == 1 && starts_with("\r");
  // Only empty lines arrived: some clients send one after a request.
  if (had_bytes && buffer_.size() == 0) return WaitForRequest();
  if (buffer_.size() == 0 || half_a_line) {
    return socket_.async_read_some(buffer_.prepare(kWatchBytes),
                                   [self = shared_from_this()](const Error& error, size_t bytes) {
                                     if (error) return self->OnReadError(error);
                                     self->buffer_.commit(bytes);
                                     self->ReadStart();
                                   });
  }
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const Error& error, size_t) { self->OnHeader(error); });
}

std::optional<HttpConnection::HeaderFault> HttpConnection::FaultOfHeader() const {
  const auto& header = parser_->get();
  const auto bad = [](std::string message) { return HeaderFault{.message = std::move(message)}; };
  if (header.version() != 10 && header.version() != 11) {
    return bad("this port serves only HTTP/1.1 (gRPC is at another port)");
  }
  if (header.version() == 11 && header.count(http::field::host) != 1) {
    return bad("an HTTP/1.1 request must have exactly one Host header");
  }
  // If these headers appear twice, a proxy may have checked a different one.
  for (const char* name : {"Authorization", "X-Api-Key", "Origin", "Idempotency-Key",
                           "X-Request-Id", "Last-Event-ID"}) {
    if (header.count(name) > 1) {
      return bad(absl::StrCat("a request may have only one ", name, " header"));
    }
  }
  // With another coding, we would misread where the body ends (RFC 9112, 6.1).
  const std::string coding = JoinedField(header, "Transfer-Encoding");
  if (header.count("Transfer-Encoding") > 0 && !absl::EqualsIgnoreCase(coding, "chunked")) {
    return HeaderFault{.status = 501,
                       .message = absl::StrCat("Transfer-Encoding is ", base::Quoted(coding),
                                               "; only chunked is supported")};
  }
  if (!absl::StartsWith(head_.path, "/")) return bad("the request's target is not a path");
  return std::nullopt;
}

void HttpConnection::TakeHead() {
  const auto& header = parser_->get();
  const auto field = [&header](auto name) {
    const auto value = header[name];
    return std::string(value.data(), value.size());
  };
  const absl::string_view target(header.target().data(), header.target().size());
  head_.method = std::string(header.method_string().data(), header.method_string().size());
  head_.path = PathOf(target);
  head_.host = HostOf(target, field(http::field::host));
  head_.content_type = field(http::field::content_type);
  head_.content_encoding = JoinedField(header, "Content-Encoding");
  head_.authorization = field(http::field::authorization);
  head_.api_key = field("X-Api-Key");
  head_.origin = field(http::field::origin);
  head_.request_method = field(http::field::access_control_request_method);
  head_.request_headers = JoinedField(header, "Access-Control-Request-Headers");
  head_.private_network = field("Access-Control-Request-Private-Network");
  head_.traceparent = JoinedField(header, "traceparent");
  head_.tracestate = JoinedField(header, "tracestate");
  head_.idempotency_key = field("Idempotency-Key");
  head_.request_id = field("X-Request-Id");
  head_.last_event_id = field("Last-Event-ID");
  is_head_ = head_.method == "HEAD";
  http_1_0_ = header.version() == 10;
  common_headers_ = all_->handler->CommonHeaders(head_);
}

void HttpConnection::OnHeader(const Error& error) {
  // The body is too long by its Content-Length, so the header is complete.
  if (error == http::error::body_limit) TakeHead();
  if (error) return OnReadError(error);
  TakeHead();
  if (const std::optional<HeaderFault> fault = FaultOfHeader()) {
    return Refuse(fault->status, fault->message,
                  fault->status == 501 ? "not_implemented" : "bad_request");
  }
  if (std::optional<HttpResponse> refusal = all_->handler->CheckHead(head_)) {
    // If the body were left unread, it would be parsed as the next request.
    return Refuse(*std::move(refusal), parser_->is_done() && parser_->get().keep_alive());
  }
  const std::string expect(parser_->get()[http::field::expect]);
  if (!expect.empty() && !absl::EqualsIgnoreCase(expect, "100-continue")) {
    return Refuse(417, "the only supported Expect value is 100-continue", "bad_request");
  }
  SetDeadline(all_->limits.body_timeout);
  if (expect.empty() || http_1_0_ || parser_->is_done()) return ReadBody();
  writing_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](const Error& failed, size_t) {
                      failed ? self->OnReadError(failed) : self->ReadBody();
                    });
}

void HttpConnection::ReadBody() {
  if (parser_->is_done()) return Dispatch();
  http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const Error& error, size_t) { self->OnBody(error); });
}

void HttpConnection::OnBody(const Error& error) {
  if (error) return OnReadError(error);
  if (!AccountBody(static_cast<int64_t>(parser_->get().body().size()))) {
    HttpResponse busy = Complaint(
        503, "the server is receiving too many bytes at once; retry later", "unavailable");
    busy.headers.emplace_back("Retry-After", "2");
    return Refuse(std::move(busy), /*keep_alive=*/false);
  }
  ReadBody();
}

bool HttpConnection::AccountBody(int64_t bytes) {
  const int64_t more = bytes - std::exchange(body_accounted_, bytes);
  return (all_->open_body_bytes += more) <= all_->limits.max_open_body_bytes || more <= 0 ||
         bytes <= all_->limits.small_body_bytes;
}

void HttpConnection::Dispatch() {
  ClearDeadline();
  state_ = State::kBusy;
  keep_alive_ = parser_->get().keep_alive();
  HttpRequest request = {.head = head_, .body = std::move(parser_->get().body())};
  parser_.reset();
  WatchReadable();
  all_->handler->Handle(std::move(request), shared_from_this());
  AccountBody(0);
}

void HttpConnection::OnReadError(const Error& error) {
  if (timed_out_) {
    return Refuse(408, "the request did not arrive in time; send it faster", "request_timeout");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refuse(431,
                  absl::StrCat("the request's header exceeds ", all_->limits.max_header_bytes,
                               " bytes; send fewer or shorter fields"),
                  "header_too_large");
  }
  if (error == http::error::body_limit) {
    return Refuse(413,
                  absl::StrCat("the request's body exceeds ", all_->limits.max_body_bytes,
                               " bytes; send a shorter one"),
                  "body_too_large");
  }
  const bool theirs = error.category() == http::make_error_code(http::error::bad_method).category();
  if (theirs && error != http::error::end_of_stream && error != http::error::partial_message) {
    return Refuse(400,
                  absl::StrCat("this is not an HTTP/1.1 request (", error.message(),
                               "); this port does not serve gRPC or TLS"),
                  "bad_request");
  }
  Close();
}

void HttpConnection::Refuse(HttpResponse response, bool keep_alive) {
  ClearDeadline();
  state_ = State::kBusy;
  keep_alive_ = keep_alive;
  Answer(std::move(response));
}

void HttpConnection::Refuse(int status, const std::string& message, const std::string& code) {
  Refuse(Complaint(status, message, code), /*keep_alive=*/false);
}

void HttpConnection::LeaveClient() {
  Close();
  if (const auto gone = std::exchange(on_gone_, nullptr)) gone();
}

void HttpConnection::Close() {
  state_ = State::kClosed;
  ClearDeadline();
  writing_taken_.clear();
  pending_taken_.clear();
  pending_.clear();
  socket_.Close();
  Leave();  // do not wait for other owners of the exchange
}

void HttpConnection::SetDeadline(absl::Duration time) {
  const int64_t mine = ++deadlines_;
  deadline_.expires_after(absl::ToChronoNanoseconds(time));
  deadline_.async_wait([self = shared_from_this(), mine](const Error& error) {
    if (!error && mine == self->deadlines_) self->OnDeadline();
  });
}

void HttpConnection::ClearDeadline() {
  ++deadlines_;
  deadline_.cancel();
}

void HttpConnection::OnDeadline() {
  switch (state_) {
    case State::kShakingHands:
    case State::kIdle:
    case State::kLingering:
      return Close();
    case State::kBusy:
      return LeaveClient();
    case State::kReading: {
      timed_out_ = true;
      Error ignored;
      socket_.tcp().cancel(ignored);
      return;
    }
    case State::kClosed:
      return;
  }
}

}  // namespace tidepool::service
