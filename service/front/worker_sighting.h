// WorkerSighting: identifies the process of a worker, as a front saw it at one time. Fate: what
// happened to that process later.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "service/front/worker_link.h"

namespace tidepool::service {

struct WorkerSighting {
  // for comparison only, because the link may have been destroyed
  const WorkerLink* link = nullptr;
  uint64_t process_id = 0;  // 0: not known
  int64_t watches = 0;      // as in WorkerSet::Member
  absl::Duration at;        // on the front's monotonic clock
};

// What is known about a process whose calls have ended as if it had crashed.
enum class Fate : uint8_t {
  kLives,  // it has responded again, so only the connection broke
  kOpen,   // not known yet
  kGone,
};
using LookAtFate = std::function<Fate(const WorkerSighting&)>;

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SIGHTING_H_
