#include "service/http/request_reader.h"

#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "service/http/http_error.h"
#include "service/http/request_head.h"

namespace tidepool::service {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kStartBytes = 4096;
constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

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

}  // namespace

RequestReader::RequestReader(HttpSocket* socket, HttpDeadline* deadline, const Server& server)
    : socket_(socket),
      deadline_(deadline),
      server_(server),
      buffer_(static_cast<size_t>(server.limits->max_header_bytes) + (64 << 10)) {}

void RequestReader::Reset() {
  parser_.reset();
  AccountBody(0);
  head_ = {};
  framing_ = {};
}

void RequestReader::Read(OwnerPtr owner) {
  Reset();
  timed_out_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(server_.limits->max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(server_.limits->max_body_bytes));
  SetDeadline(server_.limits->header_timeout, owner);
  ReadStart(std::move(owner));
}

void RequestReader::ReadStart(OwnerPtr owner) {
  const bool had_bytes = buffer_.size() > 0;
  const auto starts_with = [this](absl::string_view line) {
    const absl::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    return absl::StartsWith(bytes, line);
  };
  while (starts_with("\r\n")) buffer_.consume(2);
  const bool half_a_line = buffer_.size() == 1 && starts_with("\r");
  if (had_bytes && buffer_.size() == 0) {
    // Only an empty line has arrived. Some clients send one after a request.
    deadline_->Clear();
    return owner->OnNoRequest();
  }
  if (buffer_.size() == 0 || half_a_line) {
    return socket_->async_read_some(
        buffer_.prepare(kStartBytes),
        [this, owner = std::move(owner)](const Error& error, size_t bytes) mutable {
          if (error || timed_out_) return OnError(owner.get(), error);
          buffer_.commit(bytes);
          ReadStart(std::move(owner));
        });
  }
  http::async_read_header(*socket_, buffer_, *parser_,
                          [this, owner = std::move(owner)](const Error& error, size_t) mutable {
                            OnHeader(std::move(owner), error);
                          });
}

void RequestReader::TakeHead() {
  const auto& header = parser_->get();
  head_ = HeadOf(header);
  framing_.head_only = head_.method == "HEAD";
  framing_.http_1_0 = header.version() == 10;
  framing_.common_headers = server_.handler->CommonHeaders(head_);
}

void RequestReader::OnHeader(OwnerPtr owner, const Error& error) {
  // The error body_limit means that Content-Length exceeds the limit, and that the header is
  // complete.
  if (error == http::error::body_limit) TakeHead();
  if (error || timed_out_) return OnError(owner.get(), error);
  TakeHead();
  if (const std::optional<HeaderFault> fault = FaultOf(parser_->get(), head_)) {
    return Refuse(owner.get(), fault->status, fault->message,
                  fault->status == 501 ? "not_implemented" : "bad_request");
  }
  if (std::optional<HttpResponse> refusal = server_.handler->CheckHead(head_)) {
    // The connection is kept alive only if the whole request was read. Otherwise the rest of the
    // body would be parsed as the next request.
    const bool keep_alive = parser_->is_done() && parser_->get().keep_alive();
    return Refuse(owner.get(), *std::move(refusal), keep_alive);
  }
  const std::string expect(parser_->get()[http::field::expect]);
  if (!expect.empty() && !absl::EqualsIgnoreCase(expect, "100-continue")) {
    return Refuse(owner.get(), 417, "the only supported Expect value is 100-continue",
                  "bad_request");
  }
  SetDeadline(server_.limits->body_timeout, owner);
  if (expect.empty() || framing_.http_1_0 || parser_->is_done()) {
    return ReadBody(std::move(owner));
  }
  asio::async_write(*socket_, asio::buffer(kContinue.data(), kContinue.size()),
                    [this, owner = std::move(owner)](const Error& failed, size_t) mutable {
                      if (failed || timed_out_) return OnError(owner.get(), failed);
                      ReadBody(std::move(owner));
                    });
}

void RequestReader::ReadBody(OwnerPtr owner) {
  if (parser_->is_done()) return Pass(owner.get());
  http::async_read_some(*socket_, buffer_, *parser_,
                        [this, owner = std::move(owner)](const Error& error, size_t) mutable {
                          OnBody(std::move(owner), error);
                        });
}

void RequestReader::OnBody(OwnerPtr owner, const Error& error) {
  if (error || timed_out_) return OnError(owner.get(), error);
  if (!AccountBody(static_cast<int64_t>(parser_->get().body().size()))) {
    HttpResponse busy = Complaint(
        503, "the server is receiving too many bytes at once; retry later", "unavailable");
    busy.headers.emplace_back("Retry-After", "2");
    return Refuse(owner.get(), std::move(busy), /*keep_alive=*/false);
  }
  ReadBody(std::move(owner));
}

bool RequestReader::AccountBody(int64_t bytes) {
  const int64_t more = bytes - std::exchange(body_accounted_, bytes);
  return (*server_.open_body_bytes += more) <= server_.limits->max_open_body_bytes || more <= 0 ||
         bytes <= server_.limits->small_body_bytes;
}

void RequestReader::Pass(Owner* owner) {
  deadline_->Clear();
  framing_.keep_alive = parser_->get().keep_alive();
  HttpRequest request = {.head = head_, .body = std::move(parser_->get().body())};
  parser_.reset();
  owner->OnRequest(std::move(request), std::move(framing_));
  AccountBody(0);
}

void RequestReader::OnError(Owner* owner, const Error& error) {
  if (timed_out_) {
    return Refuse(owner, 408, "the request did not arrive in time; send it faster",
                  "request_timeout");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refuse(owner, 431,
                  absl::StrCat("the request's header exceeds ", server_.limits->max_header_bytes,
                               " bytes; send fewer or shorter fields"),
                  "header_too_large");
  }
  if (error == http::error::body_limit) {
    return Refuse(owner, 413,
                  absl::StrCat("the request's body exceeds ", server_.limits->max_body_bytes,
                               " bytes; send a shorter one"),
                  "body_too_large");
  }
  const bool theirs = error.category() == http::make_error_code(http::error::bad_method).category();
  if (theirs && error != http::error::end_of_stream && error != http::error::partial_message) {
    return Refuse(owner, 400,
                  absl::StrCat("this is not an HTTP/1.1 request (", error.message(),
                               "); this port does not serve gRPC or TLS"),
                  "bad_request");
  }
  deadline_->Clear();
  owner->OnReadFailed();
}

void RequestReader::Refuse(Owner* owner, HttpResponse response, bool keep_alive) {
  deadline_->Clear();
  framing_.keep_alive = keep_alive;
  owner->OnRefused(std::move(response), std::move(framing_));
}

void RequestReader::Refuse(Owner* owner, int status, const std::string& message,
                           const std::string& code) {
  Refuse(owner, Complaint(status, message, code), /*keep_alive=*/false);
}

void RequestReader::SetDeadline(absl::Duration time, OwnerPtr owner) {
  // Cancels the operation that is running. If it has already succeeded, its handler still sees
  // timed_out_.
  deadline_->Set(time, [this, owner = std::move(owner)] {
    timed_out_ = true;
    Error ignored;
    socket_->tcp().cancel(ignored);
  });
}

}  // namespace tidepool::service
