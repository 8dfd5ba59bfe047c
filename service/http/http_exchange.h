// What lies between HTTP's wire and what answers it: a request, its exchange, the handler.
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

// A request as far as its body.
struct HttpHead {
  std::string method;  // GET, POST, ...
  std::string path;    // without the query, percent escapes undone
  std::string content_type;
  // Headers as they came; empty: there was none. Several traceparent or tracestate are joined
  // by commas.
  std::string authorization;
  std::string api_key;  // X-Api-Key
  std::string content_encoding;
  std::string origin;
  std::string request_method;   // Access-Control-Request-Method
  std::string request_headers;  // Access-Control-Request-Headers
  std::string private_network;  // Access-Control-Request-Private-Network
  std::string host;             // of the target where that names one, else the header Host
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
  HttpHeaders headers;  // beside type, length, connection
  // A failed generation has a line in the log of requests, and a probe tells by itself.
  enum class FailureLog : uint8_t { kHere, kElsewhere } failure_log = FailureLog::kHere;
  std::shared_ptr<const void> held = {};  // goes when the client's socket has the body, or it left
};

// {"error": ...} with this status's HTTP code and, where it has one, Retry-After.
HttpResponse ErrorResponse(const absl::Status& status);

// One request's way back to its client. Functions but Post are called on the exchange's own
// executor, where the callbacks come too.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Thread-safe. Tasks run one at a time, in the order of posting.
  virtual void Post(std::function<void()> task) = 0;

  // Either one whole answer,
  virtual void Answer(HttpResponse response) = 0;
  // or one whose body (that of `head` is unused) is written piece by piece and then ended.
  virtual void BeginStream(HttpResponse head) = 0;
  // `taken` is called when the client's socket has all of `bytes`, and not if the client leaves.
  virtual void Write(std::string bytes, std::function<void()> taken) = 0;
  virtual void EndStream() = 0;

  // Called once if the client leaves before its answer is complete; whatever is answered or written
  // after that goes nowhere.
  virtual void OnGone(std::function<void()> callback) = 0;
};

// Thread-safe.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Headers of every response to this request, those that the connection makes included.
  virtual HttpHeaders CommonHeaders(const HttpHead& /*head*/) { return {}; }
  // Called of every response, when its status is known. `head` is empty where the request could not
  // be read.
  virtual void OnResponse(const HttpHead& /*head*/, const HttpResponse& /*response*/) {}

  // A request that is refused before its body is read.
  virtual std::optional<HttpResponse> CheckHead(const HttpHead& head) = 0;
  // Called on the exchange's executor. Answers now or later; exchanges may outlive the handler.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_EXCHANGE_H_
