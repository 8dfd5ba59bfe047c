// StallDetector: detects an engine that is stuck. An engine is stuck if it has pending work and its
// progress counter has not changed for the timeout. For example, a read does not return. An idle
// engine has no pending work, so it is not stuck. A slow engine is not stuck either, because the
// counter changes within each step.
#ifndef TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
#define TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::service {

// Thread-compatible. It does not read a clock: the caller gives the time.
class StallDetector {
 public:
  // `timeout`: the maximum time without progress.
  explicit StallDetector(absl::Duration timeout) : timeout_(timeout) {}

  struct Reading {
    absl::Duration at;  // monotonic time
    bool work_pending = false;
    uint64_t progress = 0;
  };
  // Returns UNAVAILABLE while the engine is stuck. The message contains the timeout.
  absl::Status Look(const Reading& reading);

 private:
  const absl::Duration timeout_;
  // The first reading with the current counter. But if no work was pending at the latest reading,
  // this is the latest reading.
  Reading last_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
