// The description of the HTTP API for programs (https://spec.openapis.org/oas/v3.1.0), made of the
// table by which requests are routed and of what their parsers read.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAPI_H_

#include <cstdint>
#include <vector>

#include "service/http/field_recorder.h"
#include "service/http/json.h"

namespace tidepool::service {

// One path with one method.
struct ApiPath {
  enum class For : uint8_t { kAnybody, kClients };
  enum class Answers : uint8_t { kJson, kJsonOrEvents, kText, kNothing };
  // Parses `body` and forgets the result.
  using ReadBody = void (*)(const Json& body, FieldRecorder* recorder);

  const char* path;  // one that ends with '/' stands for all that begin with it
  const char* method;
  For who = For::kClients;
  const char* summary = "";
  Answers answers = Answers::kJson;
  ReadBody read_body = nullptr;  // null: requests have no body
};

Json OpenApiDocument(const std::vector<ApiPath>& paths);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAPI_H_
