// RequestKey: the name that an HTTP client gives its request, so that it can send it again and
// resume the response. It corresponds to gRPC's request_id and resume_after
// (proto/tidepool/v1/inference.proto).
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

  std::string id;                        // empty: none
  std::optional<StreamPosition> resume;  // where the client resumes a stream

  // The request_id of a choice, out of `choices`.
  std::string ChoiceId(size_t choice, size_t choices) const;
};

// Returns Idempotency-Key, or X-Request-Id without one. Returns "" if neither is set, or if the
// value cannot name a request.
std::string RequestNameOf(const HttpHead& head);

// Reads Idempotency-Key, or X-Request-Id without one. INVALID_ARGUMENT if it is too long or not
// UTF-8, or if Last-Event-ID is set without either, without streaming, or is not the id of an
// event.
absl::StatusOr<RequestKey> RequestKeyOf(const HttpHead& head, const OpenAiRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_KEY_H_
