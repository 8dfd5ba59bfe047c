#include "service/front/hanging_workers.h"

namespace tidepool::service {
namespace {

// A worker that sends nothing for this time hangs: eight states are missing. The time is longer
// than a short delay of the machine, and short enough for a client that waits for its next token.
constexpr absl::Duration kLongSilence = absl::Seconds(2);

}  // namespace

std::vector<HangingWorker> HangingWorkers(const WorkerSet& workers, absl::Duration now) {
  std::vector<HangingWorker> left;
  for (const auto& member : workers.members()) {
    if (!member->connected) continue;
    const bool silent = now - member->last_state >= kLongSilence;
    const bool stuck = member->view.health == WorkerHealth::kSuspect;
    if ((!silent && !stuck) || !workers.ServedElsewhere(member->link.get(), /*understands=*/0))
      continue;
    left.push_back(
        {.link = member->link.get(),
         .why = silent ? "has stopped responding" : "reports that it cannot serve all requests"});
  }
  return left;
}

}  // namespace tidepool::service
