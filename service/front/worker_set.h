// WorkerSet: all workers of a front and the last state that each has reported.
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

// A worker that was picked. Its name stays valid even if the worker is forgotten.
struct PickedWorker {
  WorkerLink* link = nullptr;
  std::string name;
  std::string numerics_id;
  std::shared_ptr<const WorkerLink> hold;  // keeps the link alive even if the set has forgotten it
};

// A list of tasks that wait for the same event. Not thread-safe.
class OneTimeTasks {
 public:
  void Add(std::function<void()> task) { tasks_.push_back(std::move(task)); }
  // Runs the tasks that were added before this call, in their order, and removes them.
  void RunAll() {
    for (const auto& task : std::exchange(tasks_, {})) task();
  }

 private:
  std::vector<std::function<void()>> tasks_;
};

// Use it on the loop only.
class WorkerSet {
 public:
  // `clock` must outlive this object. `log` gets a line when a worker connects, leaves or fails,
  // and one for each run.
  WorkerSet(const base::Clock* clock, LogSink log) : clock_(clock), log_(std::move(log)) {}

  // Adds a worker and begins to watch its states.
  void Add(std::shared_ptr<WorkerLink> link);
  // Stops sending requests to this worker. If no request is running there, forgets the worker and
  // returns true. Otherwise call Retire again later. Must not be called from a callback of the
  // link.
  bool Retire(const WorkerLink* link);
  // Reverses Retire.
  void Rejoin(const WorkerLink* link);
  // Sets a function. It is called with true when the first worker serves, and with false when no
  // worker serves any longer.
  void OnReadiness(std::function<void(bool ready)> callback) {
    on_readiness_ = std::move(callback);
  }

  // Sets a function that is called when a worker is lost or fails a call.
  void OnTrouble(std::function<void()> callback) { on_trouble_ = std::move(callback); }

  // Sets a function that is called when a worker's stream of states (the RPC Watch) breaks and the
  // worker was not draining. The worker may have crashed.
  void OnMayHaveCrashed(std::function<void(const WorkerSighting&)> callback) {
    on_may_have_crashed_ = std::move(callback);
  }

  // Picks a worker. UNAVAILABLE if no worker of this model can take requests now. With
  // `session_id`, uses what NoteSession has recorded.
  absl::StatusOr<PickedWorker> Pick(const PickRequest& request,
                                    const std::string& session_id) const;
  // RESOURCE_EXHAUSTED, with a retry hint, if every worker that serves this model would probably
  // refuse a new request. OK does not guarantee that a worker has room.
  absl::Status CheckRoom(absl::string_view model_digest) const;
  // Records that a run begins on a worker. This is needed because the worker's last state may be
  // 250 ms old. Returns the number of the run, for NoteEnded.
  uint64_t NoteSent(const WorkerLink* link, int64_t prompt_tokens);
  void NoteEnded(const WorkerLink* link, uint64_t run);
  // A turn of this session has left KV on this worker, for the first `tokens` tokens of its log.
  void NoteSession(const WorkerLink* link, const std::string& session_id, int64_t tokens);
  // A call has failed in the worker or on the way there. The worker is suspect until its next state
  // arrives.
  void NoteFailure(const WorkerLink* link, const absl::Status& status);
  // The worker has reported during a run that it drains. The worker's next state would report this
  // only later.
  void NoteDraining(const WorkerLink* link);

  // Sight: call it when a call to the worker has ended as if the worker had crashed. Returns a
  // sighting of the process that was running. FateOf: returns what is known about that process
  // since the sighting. The process lives if it has reported a state on a new stream. A state on
  // the same stream counts only if it arrived long enough after the sighting, because a broken
  // stream can still deliver earlier states.
  WorkerSighting Sight(const WorkerLink* link) const;
  Fate FateOf(const WorkerSighting& seen) const;

  // Returns whether another worker serves the same model now, and has at least this value of
  // `understands`.
  bool ServedElsewhere(const WorkerLink* link, int32_t understands) const;

  // The worker has reported which version of GenerateRequest it supports. Workers of some releases
  // report this value only when they prepare a prompt, not in their states.
  void NoteUnderstands(const WorkerLink* link, int32_t understands);

  // Calls `task` once, when a worker becomes available or has more room. Tasks run in the order in
  // which they were added.
  void WhenChanged(std::function<void()> task) { waiting_.Add(std::move(task)); }

  struct Member {
    std::shared_ptr<WorkerLink> link;  // each run on this worker also holds it
    bool retired = false;
    WorkerView view;
    int64_t places = 0;        // maximum number of requests, running and waiting; 0: not known
    absl::Duration room_wait;  // retry hint if no request is accepted
    v1::Model model;
    bool heard = false;       // the worker has reported its model
    bool connected = false;   // its stream of states is open
    uint64_t process_id = 0;  // the last id that it reported; 0: not known
    // number of streams of states that were opened, except those after an orderly end of the
    // previous stream
    int64_t watches = 0;
    absl::Duration heard_at;  // when the last state arrived
    bool failed = false;      // a call has failed since the last state
    // code of the latest logged reason why the worker cannot be watched
    absl::StatusCode reported = absl::StatusCode::kOk;
    // when the last state arrived; in the future while the next stream is being opened
    absl::Duration last_state;
    // runs that began after the last state; the value is the number of prompt tokens
    std::map<uint64_t, int64_t> sent;
    int64_t sent_tokens = 0;  // number of prompt tokens of all runs in `sent`
    // number of runs that have ended since the last state, which still contains them
    int64_t ended = 0;
    // For each session: the number of tokens whose KV is on this worker. Cleared when the process
    // is lost.
    std::unordered_map<std::string, int64_t> sessions;
  };
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  WorkerHealth Health(const Member& member) const;

 private:
  // Returns an estimate of how many runs are on this worker now.
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

// Returns the number of workers that serve this model now. Use it on the loop only.
int64_t CountServing(const WorkerSet& workers, const std::string& model_digest);
// Returns whether `understands` is known to be at least this value for all workers. Use it on the
// loop only.
bool AllUnderstand(const WorkerSet& workers, int32_t understands);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
