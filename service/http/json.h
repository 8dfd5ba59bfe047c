// Parses untrusted JSON within limits, and writes JSON on one line.
#ifndef TIDEPOOL_SERVICE_HTTP_JSON_H_
#define TIDEPOOL_SERVICE_HTTP_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {

// Json objects keep the order of their keys, because chat templates print them in that order.
using Json = nlohmann::ordered_json;

// Parses the body of a request. The body must be one object. The error INVALID_ARGUMENT names the
// position of a syntax error, the duplicate key, or the limit that was exceeded. The limits are 64
// levels and 4 Mi values.
absl::StatusOr<Json> ParseJsonBody(absl::string_view body);

// Like ParseJsonBody, for JSON text inside a field. The text may be any JSON value.
absl::StatusOr<Json> ParseJsonText(absl::string_view text);

// Writes JSON on one line. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& json);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_JSON_H_
