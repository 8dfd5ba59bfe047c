// WorkerRoster: which workers a front has: those that are named one by one, and those that a name
// stands for, such as a headless Service's, which is looked up again and again.
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

// A name, each of whose addresses is a worker.
struct WorkerName {
  std::string host;
  int port = 0;

  friend auto operator<=>(const WorkerName&, const WorkerName&) = default;
};

struct WorkerSources {
  std::vector<std::string> addresses;  // HOST:PORT, one worker each
  std::vector<WorkerName> names;
};

// Loop only.
class WorkerRoster {
 public:
  // Between two lookups of a name; a worker that fails brings the next one forward, up to this.
  static constexpr absl::Duration kPeriod = absl::Seconds(5);
  static constexpr absl::Duration kShortestPeriod = absl::Seconds(1);

  // A link to `address`; `name` is what the worker's certificate must say where that is not the
  // address itself; empty: it is.
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

  // All outlive the roster.
  explicit WorkerRoster(Surroundings surroundings);

  // From now on these are the workers: new ones are watched and get work, ones that are gone get no
  // more, and are forgotten when what runs there has ended. A name that cannot be looked up keeps
  // the addresses that it had.
  void Set(const WorkerSources& sources);

 private:
  struct Name {
    std::vector<std::string> addresses;  // IP addresses
    bool asking = false;
    absl::Duration asked_at;
    std::string complaint;  // as last logged
  };

  void LookUp(const WorkerName& name);
  void LookUpAll(absl::Duration shortest_period);
  void OnAddresses(const WorkerName& name, absl::StatusOr<std::vector<std::string>> addresses);
  // Makes workers() what it should be.
  void Reconcile();
  void Join(const std::string& address, const std::string& name);
  void Tick();

  const Surroundings surroundings_;
  std::vector<std::string> addresses_;
  std::map<WorkerName, Name> names_;
  // By address: all that were added and are not forgotten.
  std::map<std::string, const WorkerLink*> links_;
  bool ticking_ = false;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_ROSTER_H_
