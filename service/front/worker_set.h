// WorkerSet: all workers of a front, and their last known states.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/log_level.h"
#include "service/front/pick_worker.h"
#include "service/front/worker_link.h"
#include "service/front/worker_sighting.h"

namespace tidepool::service {

// A picked worker. Its name stays valid if the worker disappears.
struct PickedWorker {
  WorkerLink* link = nullptr;
  std::string name;
  std::string numerics_id;
  std::shared_ptr<const WorkerLink> hold;  // keeps the link alive even if the set has forgotten it
};

// Tasks that wait for the same event. Not thread-safe.
class OneTimeTasks {
 public:
  void Add(std::function<void()> task) { tasks_.push_back(std::move(task)); }
  // Runs and forgets the tasks that were added before this call, in their order.
  void RunAll() {
    for (const auto& task : std::exchange(tasks_, {})) task();
  }

 private:
  std::vector<std::function<void()>> tasks_;
};

// Loop only.
class WorkerSet {
 public:
  // `clock` outlives the set. `log` gets a line when a worker connects, leaves or fails, and one
  // for each run.
  WorkerSet(const base::Clock* clock, LogSink log) : clock_(clock), log_(std::move(log)) {}

  // Adds a worker and begins to watch it.
  void Add(std::shared_ptr<WorkerLink> link);
  // Stops sending work to this worker. Returns true if nothing runs there and it was forgotten.
  // Otherwise call Retire again later. Must not be called from a callback of the link.
  bool Retire(const WorkerLink* link);
  // Undoes Retire.
  void Rejoin(const WorkerLink* link);
  // Called with true when a first worker serves, and with false when none serves any longer.
  void OnReadiness(std::function<void(bool ready)> callback) {
    on_readiness_ = std::move(callback);
  }

  // Called when a worker is lost or fails a call.
  void OnTrouble(std::function<void()> callback) { on_trouble_ = std::move(callback); }

  // Called when a worker's stream of states breaks while it is not draining: it may have crashed.
  void OnMayHaveCrashed(std::function<void(const WorkerSighting&)> callback) {
    on_may_have_crashed_ = std::move(callback);
  }

  // UNAVAILABLE if no worker of this model can take work now. With `session_id`, uses what
  // NoteSession recorded.
  absl::StatusOr<PickedWorker> Pick(const PickRequest& request,
                                    const std::string& session_id) const;
  // RESOURCE_EXHAUSTED with a retry hint if, as far as is known, every serving worker of this model
  // would refuse a new request. OK is not a guarantee.
  absl::Status CheckRoom(absl::string_view model_digest) const;
  // Records that a run begins at a worker, since the worker's last state can be 250 ms old. Returns
  // the number of the run, for NoteEnded.
  uint64_t NoteSent(const WorkerLink* link, int64_t prompt_tokens);
  void NoteEnded(const WorkerLink* link, uint64_t run);
  // A turn of this session left the KV of the log's first `tokens` tokens at this worker.
  void NoteSession(const WorkerLink* link, const std::string& session_id, int64_t tokens);
  // A call failed in the worker or on the way: the worker is suspect until its next state.
  void NoteFailure(const WorkerLink* link, const absl::Status& status);
  // The worker reported in a run that it drains, before its next state reports it.
  void NoteDraining(const WorkerLink* link);

  // Returns the worker's process, after a call to it ended as if by a crash, and what became of it.
  // The process lives if it reports its state on another stream, or on the same one for long
  // enough: a broken stream can still deliver earlier states.
  WorkerSighting Sight(const WorkerLink* link) const;
  Fate FateOf(const WorkerSighting& seen) const;

  // Number of workers that serve this model now.
  int64_t Serving(const std::string& model_digest) const;
  // Returns true if another worker serves the same model now.
  bool ServedElsewhere(const WorkerLink* link) const;

  // Calls `task` once when a worker becomes available or has more room. Tasks run in the order of
  // the calls.
  void WhenChanged(std::function<void()> task) { waiting_.Add(std::move(task)); }

  struct Member {
    std::shared_ptr<WorkerLink> link;  // also held by each run on this worker
    bool retired = false;
    WorkerView view;
    int64_t places = 0;        // maximum requests, running and waiting; 0: unknown
    absl::Duration room_wait;  // retry hint if all places are taken
    v1::Model model;
    bool heard = false;       // its model is known
    bool connected = false;   // its stream of states is open
    uint64_t process_id = 0;  // last reported; 0: unknown
    int64_t watches = 0;      // streams of states that were opened after a broken one
    absl::Duration heard_at;  // when the latest state arrived
    bool failed = false;      // a call failed since the last state
    absl::StatusCode told = absl::StatusCode::kOk;  // why it cannot be watched, as last logged
    absl::Duration last_state;         // in the future while its next stream is being opened
    std::map<uint64_t, int64_t> sent;  // since the last state: runs, with their prompt tokens
    int64_t sent_tokens = 0;           // prompt tokens of all runs in `sent`
    int64_t ended = 0;                 // runs of the last state that have ended since
    // KV tokens by session; cleared with the process
    std::unordered_map<std::string, int64_t> sessions;
  };
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  WorkerHealth Health(const Member& member) const;

 private:
  // Estimated number of runs on this worker now.
  static int64_t Sequences(const Member& member);
  void OnState(Member* member, const worker::v1::WatchResponse& state);
  void OnLost(Member* member, const absl::Status& status);
  Member* Find(const WorkerLink* link) const;
  void TellReadiness();

  const base::Clock* clock_;
  LogSink log_;
  std::vector<std::unique_ptr<Member>> members_;
  std::function<void(bool)> on_readiness_;
  std::function<void()> on_trouble_;
  std::function<void(const WorkerSighting&)> on_may_have_crashed_;
  bool ready_ = false;
  uint64_t runs_ = 0;
  OneTimeTasks waiting_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
