// StallDetector: whether an engine gets on. It is stuck when work is pending and its progress
// counter has not moved for a while: a read or a computation that does not return. An engine that
// waits for work is not, however long, nor is one that is slow: the counter moves within a step.
#ifndef TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
#define TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::service {

// Thread-compatible; reads no clock.
class StallDetector {
 public:
  // `timeout`: the maximum time without progress.
  explicit StallDetector(absl::Duration timeout) : timeout_(timeout) {}

  struct Reading {
    absl::Duration at;  // monotonic time
    bool work_pending = false;
    uint64_t progress = 0;
  };
  // UNAVAILABLE while the engine is stuck; the message has the timeout.
  absl::Status Look(const Reading& reading);

 private:
  const absl::Duration timeout_;
  // The first reading with the current counter and work pending.
  Reading last_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_STALL_DETECTOR_H_
