// RequestReader: reads the requests of an HTTP connection, one after the other.
#ifndef TIDEPOOL_SERVICE_HTTP_REQUEST_READER_H_
#define TIDEPOOL_SERVICE_HTTP_REQUEST_READER_H_

#include <atomic>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // in front of Asio, which needs and does not include it

#include "service/http/http_deadline.h"
#include "service/http/http_exchange.h"
#include "service/http/http_limits.h"
#include "service/http/http_socket.h"
#include "service/http/response_framing.h"

namespace tidepool::service {

// Used on the socket's executor only. Enforces the limits of headers and bodies, and the time in
// which they must arrive.
class RequestReader {
 public:
  // Exactly one of these is called after each Read. The deadline is cleared then.
  class Owner {
   public:
    virtual ~Owner() = default;
    // `framing` is that of the response. The request's body counts as open during this call.
    virtual void OnRequest(HttpRequest request, ResponseFraming framing) = 0;
    // The request must be refused. The rest of it may be unread: then the response closes the
    // connection.
    virtual void OnRefused(HttpResponse response, ResponseFraming framing) = 0;
    // Only empty lines arrived.
    virtual void OnNoRequest() = 0;
    // The connection failed, or the client closed it.
    virtual void OnReadFailed() = 0;
  };
  // All outlive the reader.
  struct Server {
    const HttpLimits* limits = nullptr;
    HttpHandler* handler = nullptr;
    std::atomic<int64_t>* open_body_bytes = nullptr;  // of all connections
  };

  RequestReader(HttpSocket* socket, HttpDeadline* deadline, const Server& server);
  ~RequestReader() { AccountBody(0); }

  // Reads a request, after empty lines before it (RFC 9112, 2.2). `owner` must own this object, and
  // is kept until one of its functions is called.
  void Read(std::shared_ptr<Owner> owner);
  // Drops what was read of the last request. Bytes of the next one stay in the buffer.
  void Reset();

  // The last request's, until Reset. Empty if its header could not be read.
  const HttpHead& head() const { return head_; }
  // Bytes that were received, but not parsed.
  boost::beast::flat_buffer* buffer() { return &buffer_; }

 private:
  using OwnerPtr = std::shared_ptr<Owner>;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::system::error_code;

  void ReadStart(OwnerPtr owner);
  void OnHeader(OwnerPtr owner, const Error& error);
  void TakeHead();
  void ReadBody(OwnerPtr owner);
  void OnBody(OwnerPtr owner, const Error& error);
  bool AccountBody(int64_t bytes);
  void Pass(Owner* owner);
  void OnError(Owner* owner, const Error& error);
  // Without keep_alive, the rest of the request is not read.
  void Refuse(Owner* owner, HttpResponse response, bool keep_alive);
  void Refuse(Owner* owner, int status, const std::string& message, const std::string& code);
  void SetDeadline(absl::Duration time, OwnerPtr owner);

  HttpSocket* const socket_;
  HttpDeadline* const deadline_;
  const Server server_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpHead head_;
  ResponseFraming framing_;
  int64_t body_accounted_ = 0;
  bool timed_out_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_READER_H_
