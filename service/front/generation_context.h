// GenerationContext: the objects that all generations of a front share.
#ifndef TIDEPOOL_SERVICE_FRONT_GENERATION_CONTEXT_H_
#define TIDEPOOL_SERVICE_FRONT_GENERATION_CONTEXT_H_

#include <cstdint>

#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/front/failover.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// All of them must outlive the generations.
struct GenerationContext {
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
  WorkerSet* workers = nullptr;
  SessionStore* store = nullptr;
  Failover* failover = nullptr;
  int64_t max_session_tokens = 0;  // maximum length of a session's log; 0: the model's context
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GENERATION_CONTEXT_H_
