// HangingWorkers: finds the workers that streams should leave because the workers hang.
#ifndef TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_
#define TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/front/worker_set.h"

namespace tidepool::service {

// A worker hangs if it sends nothing or reports a stuck engine, while another worker serves the
// same model.
struct HangingWorker {
  const WorkerLink* link = nullptr;
  absl::string_view why;  // what is wrong with the worker, for messages
};

// `now` is a time of the monotonic clock that `workers` uses.
std::vector<HangingWorker> HangingWorkers(const WorkerSet& workers, absl::Duration now);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_HANGING_WORKERS_H_
