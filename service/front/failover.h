// Failover: the information about failed workers that all generations of a front share.
#ifndef TIDEPOOL_SERVICE_FRONT_FAILOVER_H_
#define TIDEPOOL_SERVICE_FRONT_FAILOVER_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/front/back_off.h"
#include "service/front/crash_evidence.h"
#include "service/front/failover_queue.h"
#include "service/front/poisoned_prompts.h"
#include "service/front/stream_state.h"

namespace tidepool::service {

// Use it on the loop only.
struct Failover {
  // For `running` and `serving`, see FailoverQueue. For `look`, see CrashEvidence. The loop and the
  // clock must outlive this object.
  struct Sources {
    std::function<int64_t()> running;
    std::function<int64_t(const std::string&)> serving;
    LookAtFate look;
  };
  Failover(Executor* loop, const base::Clock* clock, Sources sources)
      : poisoned(clock),
        evidence(clock, std::move(sources.look), [this](uint64_t sent) { poisoned.Refuse(sent); }),
        queue(loop, std::move(sources.running), std::move(sources.serving)) {}
  Failover(const Failover&) = delete;
  Failover& operator=(const Failover&) = delete;

  static constexpr BackOff kBackOff = {.first = absl::Milliseconds(50), .last = absl::Seconds(1)};

  PoisonedPrompts poisoned;
  CrashEvidence evidence;
  FailoverQueue queue;
  StreamTransitions transitions;  // counts for all streams
  std::minstd_rand random{std::random_device{}()};
  int64_t moved_total = 0;     // number of streams that moved to another worker after a failure
  int64_t migrated_total = 0;  // number of streams that moved because their worker drains
  // number of streams that moved to a worker with another numerics_id
  int64_t numerics_changed_total = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FAILOVER_H_
