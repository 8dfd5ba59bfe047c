// MigrationOffer: decides whether a worker that shuts down should offer a response to the front, so
// that the front continues it on another worker.
#ifndef TIDEPOOL_SERVICE_WORKER_MIGRATION_OFFER_H_
#define TIDEPOOL_SERVICE_WORKER_MIGRATION_OFFER_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace tidepool::service {

// Thread-compatible. Times are monotonic. Positions are token positions in the response. They
// include the tokens that earlier workers generated.
class MigrationOffer {
 public:
  // Generation begins at `position`, and the response will have at most `max_tokens` tokens. If
  // OnWorkerEnd was called before, the offer becomes due.
  void OnStart(absl::Duration now, int64_t position, int64_t max_tokens);
  // The worker will end at `end`. `position` is the position of the next token. The offer becomes
  // due if generation has started and, at its speed so far, the response will not be complete
  // before `end`.
  void OnWorkerEnd(absl::Duration now, absl::Duration end, int64_t position);

  bool due() const { return due_; }
  // Returns whether the offer is due, and marks it as made.
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
