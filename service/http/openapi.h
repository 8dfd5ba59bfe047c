// Generates the OpenAPI description of the HTTP API (https://spec.openapis.org/oas/v3.1.0), from
// the routing table and from the fields that the parsers read.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAPI_H_

#include <cstdint>
#include <vector>

#include "service/http/field_recorder.h"
#include "service/http/json.h"

namespace tidepool::service {

// One path and method.
struct ApiPath {
  enum class For : uint8_t { kAnybody, kClients };
  enum class Answers : uint8_t { kJson, kJsonOrEvents, kText, kNothing };
  // Parses `body` and discards the result.
  using ReadBody = void (*)(const Json& body, FieldRecorder* recorder);

  const char* path;  // if it ends with '/', it matches all paths with this prefix
  const char* method;
  For who = For::kClients;
  const char* summary = "";
  Answers answers = Answers::kJson;
  ReadBody read_body = nullptr;  // null: requests without a body
};

// Adapts a parser of bodies to ApiPath.
template <auto parse>
void ReadBodyOf(const Json& body, FieldRecorder* recorder) {
  static_cast<void>(parse(body, recorder));
}

Json OpenApiDocument(const std::vector<ApiPath>& paths);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
