// Converts errors to OpenAI's format: an HTTP status and {"error": {message, type, param, code}}.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_ERROR_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/http/json.h"

namespace tidepool::service {

struct HttpError {
  int status = 500;
  std::string message;
  std::string type;
  std::string param;  // the request's field; empty: null in JSON
  std::string code;   // empty: null in JSON
  std::optional<int> retry_after_s;
};

// Returns INVALID_ARGUMENT with the message "FIELD COMPLAINT".
absl::Status FieldError(absl::string_view field, absl::string_view complaint);

// If `status` is INVALID_ARGUMENT and its message does not begin with a field, puts `field` before
// the message. Returns other statuses unchanged.
absl::Status WithParam(absl::Status status, absl::string_view field);

// Converts a status to an HTTP error. No other function maps status codes to HTTP. Requires:
// !status.ok().
HttpError ToHttpError(const absl::Status& status);

// Returns {"error": {...}}.
Json ErrorJson(const HttpError& error);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_ERROR_H_
