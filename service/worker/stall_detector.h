// StallDetector: detects a stuck engine. An engine is stuck if work is pending and its progress
// counter has not changed for the timeout, for example because a read does not return. An idle
// engine is not stuck, and neither is a slow one: the counter changes within a step.
#ifndef TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
#define TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::service {

// Thread-compatible. Does not read a clock.
class StallDetector {
 public:
  // `timeout`: the maximum time without progress.
  explicit StallDetector(absl::Duration timeout) : timeout_(timeout) {}

  struct Reading {
    absl::Duration at;  // monotonic time
    bool work_pending = false;
    uint64_t progress = 0;
  };
  // UNAVAILABLE while the engine is stuck. The message contains the timeout.
  absl::Status Look(const Reading& reading);

 private:
  const absl::Duration timeout_;
  // The first reading with the current counter while work is pending.
  Reading last_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
