// Parses untrusted JSON within limits, and writes JSON on one line.
#ifndef TIDEPOOL_SERVICE_HTTP_JSON_H_
#define TIDEPOOL_SERVICE_HTTP_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {

// Keeps the order of keys, because chat templates print objects in that order.
using Json = nlohmann::ordered_json;

// Parses a request's body, which must be one object. INVALID_ARGUMENT names the position of a
// syntax error, a duplicate key, or the exceeded limit: 64 levels, 4 Mi values.
absl::StatusOr<Json> ParseJsonBody(absl::string_view body);

// Same for JSON inside a field, which may be any value.
absl::StatusOr<Json> ParseJsonText(absl::string_view text);

// Writes JSON on one line. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& json);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_JSON_H_
