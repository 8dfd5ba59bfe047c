// MigrationOffer: decides whether a worker that shuts down asks the front to continue a response on
// another worker.
#ifndef TIDEPOOL_SERVICE_WORKER_MIGRATION_OFFER_H_
#define TIDEPOOL_SERVICE_WORKER_MIGRATION_OFFER_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace tidepool::service {

// Thread-compatible. Times are monotonic. Positions count the tokens of the response, including
// those of earlier attempts.
class MigrationOffer {
 public:
  // Generation begins at `position`, and the response has at most `max_tokens` tokens. If the
  // worker's end is already known, the offer is due.
  void OnStart(absl::Duration now, int64_t position, int64_t max_tokens);
  // The worker ends at `end`. If generation has started, and the response will not finish before
  // `end` at its current speed, the offer is due. `position` is that of the next token.
  void OnWorkerEnd(absl::Duration now, absl::Duration end, int64_t position);

  bool due() const { return due_; }
  // Returns whether the offer was due. Afterwards it is not.
  bool TakeDue() { return std::exchange(due_, false); }

 private:
  struct Start {
    absl::Duration time;
    int64_t position = 0;
    int64_t max_tokens = 0;
  };

  std::optional<Start> start_;
  bool worker_ends_ = false;
  bool due_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_MIGRATION_OFFER_H_
