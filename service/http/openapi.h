// Generates the OpenAPI description of the HTTP API (https://spec.openapis.org/oas/v3.1.0). Its
// sources are the routing table and the fields that the parsers read.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAPI_H_

#include <cstdint>
#include <vector>

#include "service/http/field_recorder.h"
#include "service/http/json.h"

namespace tidepool::service {

// A path with a method, and what the description says about them.
struct ApiPath {
  enum class For : uint8_t { kAnybody, kClients };
  enum class Answers : uint8_t { kJson, kJsonOrEvents, kText, kNothing };
  // Parses `body` to find out which fields exist. Discards the result.
  using ReadBody = void (*)(const Json& body, FieldRecorder* recorder);

  const char* path;  // a path that ends with '/' matches all paths that begin with it
  const char* method;
  For who = For::kClients;
  const char* summary = "";
  Answers answers = Answers::kJson;
  ReadBody read_body = nullptr;  // null if the request has no body
};

// Makes a ReadBody function from a parser of bodies.
template <auto parse>
void ReadBodyOf(const Json& body, FieldRecorder* recorder) {
  static_cast<void>(parse(body, recorder));
}

Json OpenApiDocument(const std::vector<ApiPath>& paths);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
