// WorkerSighting: a worker's process as a front last heard of it, and what became of it.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "service/front/worker_link.h"

namespace tidepool::service {

struct WorkerSighting {
  const WorkerLink* link = nullptr;  // only compared: the link may be gone
  uint64_t process_id = 0;           // 0: unknown
  int64_t watches = 0;               // streams of states opened after broken ones
  // Of the front's monotonic clock: the sighting, and the process's latest state before it.
  absl::Duration at, heard;
};

// What became of a process whose calls ended as if it had crashed.
enum class Fate : uint8_t {
  kLives,  // it answers again: only the connection broke
  kOpen,   // not known yet
  kGone,
};
using LookAtFate = std::function<Fate(const WorkerSighting&)>;

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
