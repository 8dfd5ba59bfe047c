#include "service/front/worker_link.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

// The type URL of a payload in a status. The payload says why the call has failed.
constexpr char kEndedByPayload[] = "tidepool/ended-by";
constexpr absl::string_view kCrash = "crash";
constexpr absl::string_view kUnanswered = "unanswered";

}  // namespace

EndedBy UnaryEndedBy(const absl::Status& status) {
  const auto by = status.GetPayload(kEndedByPayload);
  if (!by.has_value()) return EndedBy::kAway;
  return *by == kCrash ? EndedBy::kCrash : EndedBy::kUnanswered;
}

absl::Status WithEndedBy(absl::Status status, EndedBy by) {
  if (by == EndedBy::kCrash) status.SetPayload(kEndedByPayload, absl::Cord(kCrash));
  if (by == EndedBy::kUnanswered) status.SetPayload(kEndedByPayload, absl::Cord(kUnanswered));
  return status;
}

}  // namespace tidepool::service
