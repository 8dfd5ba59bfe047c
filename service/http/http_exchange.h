// The interface between the HTTP connection and its handler: request, exchange, handler.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_EXCHANGE_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tidepool::service {

// A request without its body.
struct HttpHead {
  std::string method;  // GET, POST, ...
  std::string path;    // without the query, percent-decoded
  std::string content_type;
  // Header values, empty if missing. Several traceparent or tracestate headers are joined by
  // commas.
  std::string authorization;
  std::string api_key;  // X-Api-Key
  std::string content_encoding;
  std::string origin;
  std::string request_method;   // Access-Control-Request-Method
  std::string request_headers;  // Access-Control-Request-Headers
  std::string private_network;  // Access-Control-Request-Private-Network
  std::string host;             // the host of the request target, else the Host header
  std::string traceparent;
  std::string tracestate;
  std::string idempotency_key;  // Idempotency-Key
  std::string request_id;       // X-Request-Id
  std::string last_event_id;    // Last-Event-ID
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  HttpHead head;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // in addition to type, length, and connection
  // kElsewhere: do not log the failure here. The request log has failed generations, and failed
  // probes are visible to whoever sent them.
  enum class FailureLog : uint8_t { kHere, kElsewhere } failure_log = FailureLog::kHere;
  // released when the socket has taken the body, or the client has disconnected
  std::shared_ptr<const void> held = {};
};

// Returns {"error": ...} with the status's HTTP code, and Retry-After if it has a retry hint.
HttpResponse ErrorResponse(const absl::Status& status);

// The response side of one request. All functions except Post must be called on the exchange's
// executor, where callbacks run, too.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Thread-safe. Tasks run one at a time, in the order of posting.
  virtual void Post(std::function<void()> task) = 0;

  // Sends one complete response.
  virtual void Answer(HttpResponse response) = 0;
  // Begins a streamed response (the body of `head` is ignored). Call Write and End then.
  virtual void BeginStream(HttpResponse head) = 0;
  // Calls `taken` when the socket has taken all of `bytes`, but not if the client disconnects.
  virtual void Write(std::string bytes, std::function<void()> taken) = 0;
  virtual void EndStream() = 0;

  // Calls `callback` once if the client disconnects before the response is complete. Later calls of
  // Answer and Write do nothing.
  virtual void OnGone(std::function<void()> callback) = 0;
};

// Thread-safe.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Headers of every response to this request, including the connection's own error responses.
  virtual HttpHeaders CommonHeaders(const HttpHead& /*head*/) { return {}; }
  // Called for every response when its status is known. `head` is empty if the request could not be
  // read.
  virtual void OnResponse(const HttpHead& /*head*/, const HttpResponse& /*response*/) {}

  // Returns a response if the request must be refused before its body is read.
  virtual std::optional<HttpResponse> CheckHead(const HttpHead& head) = 0;
  // Called on the exchange's executor. Responds now or later. Exchanges may outlive the handler.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_EXCHANGE_H_
