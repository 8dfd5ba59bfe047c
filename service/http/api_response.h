// Responses that several handlers of the HTTP API send.
#ifndef TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_
#define TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_

#include <memory>
#include <string>

#include "service/http/http_exchange.h"
#include "service/http/json.h"

namespace tidepool::service {

// All are thread-safe.

HttpResponse JsonResponse(const Json& json);
HttpResponse TextResponse(int status, std::string text);
// {"error": ...} with type invalid_request_error.
HttpResponse RefusalResponse(int status, const std::string& message, const std::string& code);

// Responds on the exchange's executor.
void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, HttpResponse response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_
