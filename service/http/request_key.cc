#include "service/http/request_key.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {

std::string RequestKey::ChoiceId(size_t choice, size_t choices) const {
  // The first choice has the name itself as its id. So a repeated request is found even if it has
  // another number of choices.
  return choices == 1 || choice == 0 ? id : absl::StrCat(id, "-", choice);
}

std::string RequestNameOf(const HttpHead& head) {
  const std::string& name = head.idempotency_key.empty() ? head.request_id : head.idempotency_key;
  const bool fits = name.size() <= RequestKey::kMaxBytes && base::CheckUtf8(name, "").ok();
  return fits ? name : "";
}

absl::StatusOr<RequestKey> RequestKeyOf(const HttpHead& head, const OpenAiRequest& request) {
  const bool idempotency = !head.idempotency_key.empty();
  const char* name = idempotency ? "Idempotency-Key" : "X-Request-Id";
  RequestKey key = {.id = idempotency ? head.idempotency_key : head.request_id};
  if (key.id.size() > RequestKey::kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", key.id.size(),
                                                   " bytes; accepted: at most ",
                                                   RequestKey::kMaxBytes, ": send a shorter one"));
  }
  RETURN_IF_ERROR(base::CheckUtf8(key.id, name));
  if (head.last_event_id.empty()) return key;
  if (key.id.empty()) {
    return absl::InvalidArgumentError(
        "Last-Event-ID needs the Idempotency-Key or X-Request-Id of the request to resume; "
        "send it too");
  }
  if (!request.stream) {
    return absl::InvalidArgumentError(
        "Last-Event-ID resumes a stream, but stream is not true; set it, or omit Last-Event-ID");
  }
  ASSIGN_OR_RETURN(key.resume, StreamPosition::Parse(head.last_event_id, request.choices.size()));
  return key;
}

}  // namespace tidepool::service
