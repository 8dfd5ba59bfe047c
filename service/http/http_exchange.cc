#include "service/http/http_exchange.h"

#include "absl/strings/str_cat.h"
#include "service/http/http_error.h"

namespace tidepool::service {

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

}  // namespace tidepool::service
