#include "service/http/openapi.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/base/version.h"

namespace tidepool::service {
namespace {

// The name of the last path segment, in paths that end with '/'.
constexpr char kParameter[] = "id";

Json StringSchema() { return {{"type", "string"}}; }

Json ErrorSchema() {
  const Json or_null = {{"type", Json::array({"string", "null"})}};
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", Json::array({"message", "type", "param", "code"})},
              {"properties",
               {{"message", StringSchema()},
                {"type", StringSchema()},
                {"param", or_null},
                {"code", or_null}}}}}}}};
}

Json Content(ApiPath::Answers answers) {
  const Json object = {{"schema", {{"type", "object"}}}};
  const Json text = {{"schema", StringSchema()}};
  switch (answers) {
    case ApiPath::Answers::kJson:
      return {{"application/json", object}};
    case ApiPath::Answers::kJsonOrEvents:
      return {{"application/json", object}, {"text/event-stream", text}};
    case ApiPath::Answers::kText:
      return {{"text/plain", text}};
    case ApiPath::Answers::kNothing:
      break;
  }
  return Json::object();
}

// Describes path and header parameters.
Json Parameters(const ApiPath& path) {
  Json parameters = Json::array();
  if (absl::EndsWith(path.path, "/")) {
    parameters.push_back(
        {{"name", kParameter}, {"in", "path"}, {"required", true}, {"schema", StringSchema()}});
  }
  if (path.answers != ApiPath::Answers::kJsonOrEvents) return parameters;
  constexpr std::pair<const char*, const char*> kHeaders[] = {
      {"Idempotency-Key", "Names the request, so that a retry does not compute it again."},
      {"X-Request-Id", "The same, if Idempotency-Key is not set."},
      {"Last-Event-ID", "Resumes the stream of a named request after the event with this id."}};
  for (const auto& [name, what] : kHeaders) {
    parameters.push_back(
        {{"name", name}, {"in", "header"}, {"description", what}, {"schema", StringSchema()}});
  }
  return parameters;
}

Json Operation(const ApiPath& path) {
  Json ok = {{"description", "OK"}};
  if (Json content = Content(path.answers); !content.empty()) ok["content"] = std::move(content);
  Json operation = {{"summary", path.summary}, {"responses", {{"200", std::move(ok)}}}};
  if (path.who == ApiPath::For::kClients) {
    // A bearer token or an API key. The empty object means that no token is needed if
    // authentication is off.
    operation["security"] =
        Json::array({{{"bearer", Json::array()}}, {{"apiKey", Json::array()}}, Json::object()});
    operation["responses"]["default"] = {
        {"description", "An error."},
        {"content",
         {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  } else {
    operation["responses"]["503"] = {{"description", "Not available."}};
  }
  if (Json parameters = Parameters(path); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  if (path.read_body != nullptr) {
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", BodySchema(path.read_body)}}}}}};
  }
  return operation;
}

}  // namespace

Json OpenApiDocument(const std::vector<ApiPath>& paths) {
  Json described = Json::object();
  for (const ApiPath& path : paths) {
    std::string name = path.path;
    if (absl::EndsWith(name, "/")) absl::StrAppend(&name, "{", kParameter, "}");
    described[name][absl::AsciiStrToLower(path.method)] = Operation(path);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Tidepool"}, {"version", kVersion}}},
          {"paths", std::move(described)},
          {"components",
           {{"schemas", {{"Error", ErrorSchema()}}},
            {"securitySchemes",
             {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
              {"apiKey", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}}}};
}

}  // namespace tidepool::service
