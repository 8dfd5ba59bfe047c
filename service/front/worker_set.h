// WorkerSet: all workers of a front, and what is known of each now.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/pick_worker.h"
#include "service/front/worker_link.h"

namespace tidepool::service {

// One that was picked: its name outlives its absence.
struct PickedWorker {
  WorkerLink* link = nullptr;  // lives as long as the set
  std::string name;
  std::string numerics_id;
};

// Loop only.
class WorkerSet {
 public:
  using Log = std::function<void(absl::string_view)>;

  // `clock` outlives the set. `log` gets a line when a worker comes or goes.
  WorkerSet(const base::Clock* clock, Log log) : clock_(clock), log_(std::move(log)) {}

  // Begins to watch.
  void Add(std::unique_ptr<WorkerLink> link);
  // Called when the number of serving workers turns to or from 0.
  void OnReadiness(std::function<void(bool ready)> callback) { on_readiness_ = std::move(callback); }

  // The models of all workers that were heard of, once each.
  std::vector<v1::Model> Models() const;
  // `name` empty: the only one. UNAVAILABLE: no worker was heard of yet; NOT_FOUND: unknown name;
  // INVALID_ARGUMENT: no name, and several models.
  absl::StatusOr<v1::Model> FindModel(absl::string_view name) const;

  // UNAVAILABLE: no worker of this model can take work now.
  absl::StatusOr<PickedWorker> Pick(const PickRequest& request) const;
  // Work that a worker was given, until its next state tells of it.
  void NoteSent(const WorkerLink* link, int64_t prompt_tokens);
  // A call failed in the worker or on the way: it is suspect until its next state.
  void NoteFailure(const WorkerLink* link, const absl::Status& status);

  // Calls `task` once when something changed for the better, in the order of asking.
  void WhenChanged(std::function<void()> task) { waiting_.push_back(std::move(task)); }

  struct Member {
    std::unique_ptr<WorkerLink> link;
    WorkerView view;
    v1::Model model;
    bool heard = false;      // of the model at least
    bool connected = false;  // its stream of states is up
    bool failed = false;     // since the last state
    absl::Duration last_state;
    int64_t sent_prompt_tokens = 0;  // since the last state
    int64_t sent_sequences = 0;
  };
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  WorkerHealth Health(const Member& member) const;

 private:
  void OnState(Member* member, const worker::v1::WatchResponse& state);
  void OnLost(Member* member, const absl::Status& status);
  void TellReadiness();
  void WakeWaiting();

  const base::Clock* clock_;
  Log log_;
  std::vector<std::unique_ptr<Member>> members_;
  std::function<void(bool)> on_readiness_;
  bool ready_ = false;
  std::list<std::function<void()>> waiting_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
