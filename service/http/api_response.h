// Makes the responses that several handlers of the HTTP API send.
#ifndef TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_
#define TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_

#include <memory>
#include <string>

#include "service/http/http_exchange.h"
#include "service/http/json.h"

namespace tidepool::service {

// All functions here are thread-safe.

HttpResponse JsonResponse(const Json& json);
HttpResponse TextResponse(int status, std::string text);
// Returns a response with the body {"error": ...}, whose type is invalid_request_error.
HttpResponse RefusalResponse(int status, const std::string& message, const std::string& code);

// Posts a task to the exchange's executor. The task sends the response.
void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, HttpResponse response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_API_RESPONSE_H_
