#include "service/http/http_error.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

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

// The HTTP error for a status. If OpenAI's server has a code and a type for the error, this table
// has the same values.
struct Mapping {
  int status;
  const char* type;
  const char* code;
  int retry_after_s;  // in seconds; 0: no Retry-After header
};

Mapping MappingOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return {400, "invalid_request_error", "", 0};
    // An unsupported feature is a 400 and not a 501, because clients retry after a 501.
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

// Messages such as "chat.a and chat.b are ..." begin with two gRPC fields. Returns the second one,
// or "".
absl::string_view SecondField(absl::string_view message, absl::string_view first) {
  absl::string_view rest = message.substr(first.size());
  if (!absl::StrContains(first, '.') || !absl::ConsumePrefix(&rest, " and ")) return "";
  return rest.substr(0, rest.find(' '));
}

// Returns the field at the beginning of the message. The engine's messages begin with a field, for
// example "temperature is 200; ...".
absl::string_view FieldInFront(absl::string_view message) {
  size_t end = 0;
  while (end < message.size() &&
         (absl::ascii_isalnum(message[end]) || absl::StrContains("_.[]", message.substr(end, 1)))) {
    ++end;
  }
  const absl::string_view rest = message.substr(end);
  const absl::string_view field = message.substr(0, end);
  for (const absl::string_view verb : {" is ", " has ", " needs ", " key ", " of "}) {
    if (absl::StartsWith(rest, verb)) return field;
  }
  return SecondField(message, field).empty() ? "" : field;
}

// gRPC field names that are different over HTTP.
constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
    {"tools_json", "tools"},           {"template_kwargs_json", "chat_template_kwargs"},
    {"tool_calls_json", "tool_calls"}, {"logit_bias_text", "logit_bias"},
    {"token_ids", "prompt"},           {"text", "prompt"},
};

// Returns the HTTP name of a gRPC field: for "chat.messages[0].tool_calls_json", it is
// "messages[0].tool_calls".
std::string HttpField(absl::string_view field) {
  for (const absl::string_view group : {"chat.", "sampling.", "stopping."}) {
    absl::ConsumePrefix(&field, group);
  }
  const size_t dot = field.rfind('.');
  const size_t last = dot == absl::string_view::npos ? 0 : dot + 1;
  for (const auto& [grpc, http] : kNames) {
    const absl::string_view name = field.substr(last);
    if (name == grpc) return absl::StrCat(field.substr(0, last), http);
    if (last == 0 && absl::StartsWith(name, grpc) && name.substr(grpc.size(), 1) == "[") {
      return absl::StrCat(http, name.substr(grpc.size()));
    }
  }
  return std::string(field);
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view complaint) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, " ", complaint));
  status.SetPayload(kParam, absl::Cord(field));
  return status;
}

absl::Status WithParam(absl::Status status, absl::string_view field) {
  if (absl::IsInvalidArgument(status) && FieldInFront(status.message()).empty()) {
    status.SetPayload(kParam, absl::Cord(field));
  }
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
    const absl::string_view field = FieldInFront(status.message());
    error.param = HttpField(field);
    absl::string_view rest = status.message().substr(field.size());
    const absl::string_view second = SecondField(status.message(), field);
    if (!second.empty()) rest.remove_prefix(absl::string_view(" and ").size() + second.size());
    error.message =
        absl::StrCat(error.param, second.empty() ? "" : " and ", HttpField(second), rest);
    // If a request has several prompts, the worker does not know the index of its prompt. So remove
    // the index.
    if (absl::StartsWith(error.param, "prompt[")) error.param = "prompt";
  }
  // A worker's status contains only a code and a message. So find the kind of error in the message.
  // Workers of the previous release write "the context of".
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
