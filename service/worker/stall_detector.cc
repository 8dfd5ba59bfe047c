#include "service/worker/stall_detector.h"

#include "absl/strings/str_cat.h"

namespace tidepool::service {

absl::Status StallDetector::Look(const Reading& reading) {
  if (!reading.work_pending || !last_.work_pending || reading.progress != last_.progress) {
    last_ = reading;
    return absl::OkStatus();
  }
  if (reading.at - last_.at < timeout_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the engine is stuck: work is pending, but there was no progress for ",
                   absl::FormatDuration(timeout_)));
}

}  // namespace tidepool::service
