// WorkerRoster: maintains a front's list of workers. The list comes from addresses, and from DNS
// names (for example of a headless Service), which are looked up periodically.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_ROSTER_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_ROSTER_H_

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"
#include "service/front/name_lookup.h"
#include "service/front/worker_set.h"

namespace tidepool::service {

// A DNS name. Each of its addresses is one worker.
struct WorkerName {
  std::string host;
  int port = 0;

  friend auto operator<=>(const WorkerName&, const WorkerName&) = default;
};

struct WorkerSources {
  std::vector<std::string> addresses;  // HOST:PORT, one for each worker
  std::vector<WorkerName> names;
};

// Use it on the loop only.
class WorkerRoster {
 public:
  // The time between two lookups of a name. If a worker fails, the name is looked up earlier, but
  // at least kShortestPeriod after the last lookup.
  static constexpr absl::Duration kPeriod = absl::Seconds(5);
  static constexpr absl::Duration kShortestPeriod = absl::Seconds(1);

  // Creates a link to `address`. The worker's certificate must be valid for `name`. If `name` is
  // empty, the certificate must be valid for the address.
  using MakeLink = std::function<std::shared_ptr<WorkerLink>(const std::string& address,
                                                             const std::string& name)>;
  struct Surroundings {
    Executor* loop = nullptr;
    const base::Clock* clock = nullptr;
    WorkerSet* workers = nullptr;
    NameLookup* lookup = nullptr;
    MakeLink make_link;
    LogSink log;
  };

  // Everything in `surroundings` must outlive this object.
  explicit WorkerRoster(Surroundings surroundings);

  // Replaces the list of workers. New workers are watched and get requests. Removed workers get no
  // new requests, and are forgotten when their running requests have ended. If a name cannot be
  // resolved, its previous addresses stay in the list.
  void Set(const WorkerSources& sources);

 private:
  struct Name {
    std::vector<std::string> addresses;  // IP addresses
    bool asking = false;
    absl::Duration asked_at;
    std::string complaint;  // the last error that was logged
  };

  void LookUp(const WorkerName& name);
  void LookUpAll(absl::Duration shortest_period);
  void OnAddresses(const WorkerName& name, absl::StatusOr<std::vector<std::string>> addresses);
  // Adds and retires workers so that the WorkerSet matches the list.
  void Reconcile();
  void Join(const std::string& address, const std::string& name);
  void Tick();

  const Surroundings surroundings_;
  std::vector<std::string> addresses_;
  std::map<WorkerName, Name> names_;
  // The key is the address. Contains all workers that were added and not forgotten yet.
  std::map<std::string, const WorkerLink*> links_;
  bool ticking_ = false;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_ROSTER_H_
