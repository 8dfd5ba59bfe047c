// RequestKey: the name that an HTTP client gives to its request. If the connection breaks, the
// client sends the request again with the same name, and the response is resumed. In gRPC, the
// fields request_id and resume_after do the same (proto/tidepool/v1/inference.proto).
#ifndef TIDEPOOL_SERVICE_HTTP_REQUEST_KEY_H_
#define TIDEPOOL_SERVICE_HTTP_REQUEST_KEY_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "service/http/http_exchange.h"
#include "service/http/openai_request.h"
#include "service/http/stream_position.h"

namespace tidepool::service {

struct RequestKey {
  static constexpr size_t kMaxBytes = 128;

  std::string id;                        // empty: the request has no name
  std::optional<StreamPosition> resume;  // where the client wants to resume a stream

  // Returns the request_id of choice number `choice`. The request has `choices` choices.
  std::string ChoiceId(size_t choice, size_t choices) const;
};

// Returns the value of Idempotency-Key, or, without that header, of X-Request-Id. Returns "" if
// neither is set, or if the value is not valid as a name.
std::string RequestNameOf(const HttpHead& head);

// Reads Idempotency-Key, or, without that header, X-Request-Id. INVALID_ARGUMENT if the name is too
// long or is not UTF-8. With Last-Event-ID, also INVALID_ARGUMENT if the request has no name, the
// response is not streamed, or the value is not the id of an event.
absl::StatusOr<RequestKey> RequestKeyOf(const HttpHead& head, const OpenAiRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_KEY_H_
