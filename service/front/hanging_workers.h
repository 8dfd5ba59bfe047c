// HangingWorkers: the workers that their streams should leave.
#ifndef TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_
#define TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/front/worker_set.h"

namespace tidepool::service {

// A worker that is silent or reports a stuck engine, while another worker serves its model.
struct HangingWorker {
  const WorkerLink* link = nullptr;
  absl::string_view why;  // what the worker does, for messages
};

// `now` is of the monotonic clock of the set.
std::vector<HangingWorker> HangingWorkers(const WorkerSet& workers, absl::Duration now);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_
