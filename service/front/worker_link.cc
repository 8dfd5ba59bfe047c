#include "service/front/worker_link.h"

#include "absl/strings/cord.h"

namespace tidepool::service {
namespace {

// Of a status: a payload is what a status carries beside its code and message.
constexpr char kCrashPayload[] = "tidepool/ended-by-crash";

}  // namespace

EndedBy UnaryEndedBy(const absl::Status& status) {
  return status.GetPayload(kCrashPayload).has_value() ? EndedBy::kCrash : EndedBy::kAway;
}

absl::Status EndedByCrash(absl::Status status) {
  status.SetPayload(kCrashPayload, absl::Cord());
  return status;
}

}  // namespace tidepool::service
