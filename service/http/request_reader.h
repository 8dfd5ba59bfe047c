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
#include <utility>

#include "service/http/http_deadline.h"
#include "service/http/http_exchange.h"
#include "service/http/http_limits.h"
#include "service/http/http_socket.h"
#include "service/http/response_framing.h"

namespace tidepool::service {

// Use it on the socket's executor only. It enforces the limits on the sizes of headers and bodies,
// and on the time in which they must arrive.
class RequestReader {
 public:
  // After each Read, exactly one of these functions is called. Before the call, the deadline is
  // cleared.
  class Owner {
   public:
    virtual ~Owner() = default;
    // A request has arrived. `framing` is for its response. During this call, the body still counts
    // in open_body_bytes.
    virtual void OnRequest(HttpRequest request, ResponseFraming framing) = 0;
    // The request must be refused with `response`. If part of the request is still unread,
    // `framing` says that the response closes the connection.
    virtual void OnRefused(HttpResponse response, ResponseFraming framing) = 0;
    // Only empty lines have arrived.
    virtual void OnNoRequest() = 0;
    // The connection failed, or the client closed it.
    virtual void OnReadFailed() = 0;
  };
  // The parts of the server that a reader uses. All of them must outlive the reader.
  struct Server {
    const HttpLimits* limits = nullptr;
    HttpHandler* handler = nullptr;
    // bytes of bodies that all connections receive now
    std::atomic<int64_t>* open_body_bytes = nullptr;
  };

  RequestReader(HttpSocket* socket, HttpDeadline* deadline, const Server& server);
  ~RequestReader() { AccountBody(0); }

  // Reads a request. Ignores empty lines before it (RFC 9112, 2.2). `owner` must own this object.
  // `owner` is kept alive until one of its functions is called.
  void Read(std::shared_ptr<Owner> owner);
  // Forgets the last request. Bytes of the next request stay in the buffer.
  void Reset();

  // The head of the last request, until Reset is called. Empty if the header could not be read.
  const HttpHead& head() const { return head_; }
  // Bytes that were received but not parsed yet.
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
  // If `keep_alive` is false, the rest of the request is not read, and the connection closes.
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
