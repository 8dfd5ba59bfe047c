#include "service/http/api_response.h"

#include <utility>

#include "service/http/http_error.h"

namespace tidepool::service {

HttpResponse JsonResponse(const Json& json) {
  HttpResponse response;
  response.body = DumpJson(json);
  return response;
}

HttpResponse TextResponse(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(text);
  return response;
}

HttpResponse RefusalResponse(int status, const std::string& message, const std::string& code) {
  HttpResponse response = JsonResponse(ErrorJson(
      {.status = status, .message = message, .type = "invalid_request_error", .code = code}));
  response.status = status;
  return response;
}

void AnswerLater(const std::shared_ptr<HttpExchange>& exchange, HttpResponse response) {
  exchange->Post([exchange, response = std::move(response)] { exchange->Answer(response); });
}

}  // namespace tidepool::service
