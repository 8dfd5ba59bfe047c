#include "service/http/http_error.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

constexpr char kParam[] = "tidepool/http-param";

// Codes and types that OpenAI's own server answers with, where it has one.
struct Mapping {
  int status;
  const char* type;
  const char* code;
  int retry_after_s;  // 0: none
};

Mapping MappingOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return {400, "invalid_request_error", "", 0};
    // What is known and not done is the request's fault here: clients repeat what gets a 501.
    case absl::StatusCode::kUnimplemented:
      return {400, "invalid_request_error", "unsupported_parameter", 0};
    case absl::StatusCode::kUnauthenticated:
      return {401, "authentication_error", "invalid_api_key", 0};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error", "", 0};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "", 0};
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return {409, "conflict_error", "", 0};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded", 1};
    case absl::StatusCode::kCancelled:
      return {499, "invalid_request_error", "cancelled", 0};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", "unavailable", 2};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "timeout_error", "deadline_exceeded", 0};
    default:
      return {500, "server_error", "internal_error", 0};
  }
}

// "temperature is 200; ..." is about temperature: the engine's messages begin with the field.
absl::string_view FieldInFront(absl::string_view message) {
  message = absl::StripPrefix(message, "chat.");
  size_t end = 0;
  while (end < message.size() &&
         (absl::ascii_isalnum(message[end]) || absl::StrContains("_.[]", message.substr(end, 1)))) {
    ++end;
  }
  const absl::string_view rest = message.substr(end);
  for (const absl::string_view verb : {" is ", " has ", " needs ", " key ", " of token "}) {
    if (absl::StartsWith(rest, verb)) return message.substr(0, end);
  }
  return "";
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view complaint) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, " ", complaint));
  status.SetPayload(kParam, absl::Cord(field));
  return status;
}

HttpError ToHttpError(const absl::Status& status) {
  CHECK(!status.ok());
  const Mapping mapping = MappingOf(status.code());
  HttpError error = {.status = mapping.status,
                     .message = std::string(status.message()),
                     .type = mapping.type,
                     .code = mapping.code};
  if (mapping.retry_after_s > 0) error.retry_after_s = mapping.retry_after_s;
  if (const auto wait = base::RetryAfterOf(status)) {
    error.retry_after_s = static_cast<int>(
        std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(*wait, absl::Seconds(1)))));
  }
  if (const auto param = status.GetPayload(kParam)) {
    error.param = std::string(*param);
  } else if (mapping.status == 400) {
    error.param = std::string(FieldInFront(status.message()));
  }
  // Statuses cross the wire as code and message alone.
  // "the context of" is what workers of the release before say.
  if (absl::IsInvalidArgument(status) && absl::StartsWith(status.message(), "the prompt ") &&
      (absl::StrContains(status.message(), "maximum context length") ||
       absl::StrContains(status.message(), "the context of "))) {
    error.code = "context_length_exceeded";
  }
  if (absl::IsNotFound(status) && absl::StartsWith(status.message(), "model ")) {
    error.param = "model";
    error.code = "model_not_found";
  }
  return error;
}

Json ErrorJson(const HttpError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

}  // namespace tidepool::service
