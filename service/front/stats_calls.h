// StatsCalls: handles the Admin calls GetStats and WatchStats, for a front and all its workers.
#ifndef TIDEPOOL_SERVICE_FRONT_STATS_CALLS_H_
#define TIDEPOOL_SERVICE_FRONT_STATS_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/stats_watch.h"
#include "service/front/failover.h"
#include "service/front/request_records.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

// Use it on the loop only. Responses also arrive there.
class StatsCalls {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // The parts of the front that are reported. All of them must outlive the calls.
  struct Front {
    Executor* loop = nullptr;
    const base::Clock* clock = nullptr;
    SessionStore* store = nullptr;
    const WorkerSet* workers = nullptr;
    const Failover* failover = nullptr;
    RequestRecords* requests = nullptr;
    std::function<int64_t()> running;  // returns the number of running generations
  };
  explicit StatsCalls(Front front);

  void Get(const v1::GetStatsRequest& request, Done<v1::GetStatsResponse> done);
  // Starts a watch. Returns null if it has already ended. In that case, the sink was finished.
  std::shared_ptr<StatsWatch> Watch(const v1::WatchStatsRequest& request, StatsWatchSink* sink);
  // Ends all watches with this status. Watches that start later also end with it.
  void CloseWatches(const absl::Status& status) { watches_.Close(status); }

 private:
  const Front front_;
  const absl::Duration started_;
  StatsWatches watches_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STATS_CALLS_H_
