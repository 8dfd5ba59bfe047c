// The interface between an HTTP connection and the handler of its requests.
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

// A request without its body. A missing header is an empty string.
struct HttpHead {
  std::string method;  // GET, POST, ...
  std::string path;    // without the query, percent-decoded
  std::string content_type;
  // If a request has several traceparent or tracestate headers, their values are joined by commas.
  std::string authorization;
  std::string api_key;  // X-Api-Key
  std::string content_encoding;
  std::string origin;
  std::string request_method;   // Access-Control-Request-Method
  std::string request_headers;  // Access-Control-Request-Headers
  std::string private_network;  // Access-Control-Request-Private-Network
  std::string host;  // from the request target, or, if the target has none, from the Host header
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
  HttpHeaders headers;  // sent in addition to Content-Type, Content-Length and Connection
  // Whether HttpLog logs a failure. kElsewhere: HttpLog does not log the failure. Either another
  // log contains it (a failed generation is in the request log), or the sender of a probe sees it.
  enum class FailureLog : uint8_t { kHere, kElsewhere } failure_log = FailureLog::kHere;
  // Keeps an object alive until the socket has taken the body, or the client has disconnected.
  std::shared_ptr<const void> held = {};
};

// Returns {"error": ...} with the HTTP status for `status`. Adds Retry-After if `status` contains a
// retry hint.
HttpResponse ErrorResponse(const absl::Status& status);

// Sends the response to one request. Call all functions except Post on the exchange's executor.
// Callbacks also run there.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Runs `task` on the exchange's executor. Tasks run one at a time, in the order in which they
  // were posted. Thread-safe.
  virtual void Post(std::function<void()> task) = 0;

  // Sends a complete response.
  virtual void Answer(HttpResponse response) = 0;
  // Begins a streamed response. The body of `head` is ignored. Then call Write any number of times,
  // and EndStream once.
  virtual void BeginStream(HttpResponse head) = 0;
  // Sends bytes of a streamed response. Calls `taken` when the socket has taken all of them, but
  // does not call it if the client disconnects.
  virtual void Write(std::string bytes, std::function<void()> taken) = 0;
  virtual void EndStream() = 0;

  // Calls `callback` once if the client disconnects before the response is complete. After that,
  // Answer and Write do nothing.
  virtual void OnGone(std::function<void()> callback) = 0;
};

// Thread-safe.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Returns the headers that every response to this request gets. Responses that the connection
  // itself makes, for example for a request that is too large, get them too.
  virtual HttpHeaders CommonHeaders(const HttpHead& /*head*/) { return {}; }
  // Called for every response, when its status is known. `head` is empty if the request could not
  // be read.
  virtual void OnResponse(const HttpHead& /*head*/, const HttpResponse& /*response*/) {}

  // Called before the request's body is read. Returns a response to refuse the request, or nullopt
  // to accept it.
  virtual std::optional<HttpResponse> CheckHead(const HttpHead& head) = 0;
  // Handles a request. Must respond through `exchange`, now or later. Called on the exchange's
  // executor. Exchanges may outlive the handler.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_EXCHANGE_H_
