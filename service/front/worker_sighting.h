// WorkerSighting: a worker's process when a front last received a message from it, and its fate.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "service/front/worker_link.h"

namespace tidepool::service {

struct WorkerSighting {
  const WorkerLink* link = nullptr;  // only compared: the link may have been destroyed
  uint64_t process_id = 0;           // 0: unknown
  int64_t watches = 0;               // streams of states opened after broken ones
  absl::Duration at;                 // on the front's monotonic clock
};

// What became of a process whose calls ended as if it had crashed.
enum class Fate : uint8_t {
  kLives,  // it responds again: only the connection broke
  kOpen,   // unknown so far
  kGone,
};
using LookAtFate = std::function<Fate(const WorkerSighting&)>;

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
