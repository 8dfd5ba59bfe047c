#include "service/worker/migration_offer.h"

namespace tidepool::service {

void MigrationOffer::OnStart(absl::Duration now, int64_t position, int64_t max_tokens) {
  start_ = {.time = now, .position = position, .max_tokens = max_tokens};
  due_ = worker_ends_;
}

void MigrationOffer::OnWorkerEnd(absl::Duration now, absl::Duration end, int64_t position) {
  worker_ends_ = true;
  if (!start_.has_value()) return;
  const int64_t made = position - start_->position;
  if (made > 0) {
    const absl::Duration pace = (now - start_->time) / made;
    if (now + pace * (start_->max_tokens - position) <= end) return;
  }
  due_ = true;
}

}  // namespace tidepool::service
