// WorkerSet: all workers of a front, and what is known of each now.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
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

// One that was picked: its name outlives its absence.
struct PickedWorker {
  WorkerLink* link = nullptr;
  std::string name;
  std::string numerics_id;
  std::shared_ptr<const WorkerLink> hold;  // keeps the link, also when the set has forgotten it
};

// Loop only.
class WorkerSet {
 public:
  // `clock` outlives the set. `log` gets a line when a worker comes, goes or fails, and of each
  // run.
  WorkerSet(const base::Clock* clock, LogSink log) : clock_(clock), log_(std::move(log)) {}

  // Begins to watch.
  void Add(std::shared_ptr<WorkerLink> link);
  // No work begins there any more. True: nothing ran there and it is forgotten; else it is to be
  // retired again later. Not to be called from a callback of the link.
  bool Retire(const WorkerLink* link);
  // It was retired by mistake.
  void Rejoin(const WorkerLink* link);
  // Called when the number of serving workers turns to or from 0.
  void OnReadiness(std::function<void(bool ready)> callback) {
    on_readiness_ = std::move(callback);
  }

  // Called when a worker is lost or fails a call.
  void OnTrouble(std::function<void()> callback) { on_trouble_ = std::move(callback); }

  // Called when the stream of states of a worker breaks that does not drain: it may have crashed.
  void OnMayHaveCrashed(std::function<void(const WorkerSighting&)> callback) {
    on_may_have_crashed_ = std::move(callback);
  }

  // The models of all workers that were heard of, once each, with the aliases of all its workers.
  std::vector<v1::Model> Models() const;
  // `name` is a model's or one of its aliases; empty: the only one. UNAVAILABLE: no worker was
  // heard of yet; NOT_FOUND: unknown name; INVALID_ARGUMENT: no name, and several models.
  absl::StatusOr<v1::Model> FindModel(absl::string_view name) const;
  // A session's: of several models of this name the one of this ModelIdentity, if it is served.
  absl::StatusOr<v1::Model> FindModel(absl::string_view name, absl::string_view digest) const;

  // Those of this name, or all there are; NOT_FOUND: none has it.
  struct Member;
  absl::StatusOr<std::vector<const Member*>> Named(const std::optional<std::string>& name) const;

  // UNAVAILABLE: no worker of this model can take work now. With `session_id`, what NoteSession
  // said of it counts.
  absl::StatusOr<PickedWorker> Pick(const PickRequest& request,
                                    const std::string& session_id) const;
  // RESOURCE_EXHAUSTED with a hint when to come back: as far as is known, every worker of this
  // model that serves would refuse a new request. OK is no promise.
  absl::Status CheckRoom(absl::string_view model_digest) const;
  // A run begins at a worker. Its states are up to 250 ms old: until the next one tells of the
  // run, and of its end, these two do. The result names the run.
  uint64_t NoteSent(const WorkerLink* link, int64_t prompt_tokens);
  void NoteEnded(const WorkerLink* link, uint64_t run);
  // A turn of this session left the KV of its log's first `tokens` at a worker.
  void NoteSession(const WorkerLink* link, const std::string& session_id, int64_t tokens);
  // A call failed in the worker or on the way: it is suspect until its next state.
  void NoteFailure(const WorkerLink* link, const absl::Status& status);
  // It told a run that it drains, before its next state does.
  void NoteDraining(const WorkerLink* link);

  // The worker's process, now that a call to it has ended as by a crash, and what became of it. It
  // lives on when it says its state on another stream, or for long enough on the same one: one that
  // breaks can still bring states of before.
  WorkerSighting Sight(const WorkerLink* link) const;
  Fate FateOf(const WorkerSighting& seen) const;

  // How many serve this model now.
  int64_t Serving(const std::string& model_digest) const;
  // Whether another worker serves its model now.
  bool ServedElsewhere(const WorkerLink* link) const;

  // Workers that say nothing for so long, or of whose engines they say such things, that whoever
  // waits for them is better off elsewhere, where another one serves their model.
  struct ToLeave {
    const WorkerLink* link = nullptr;
    absl::string_view why;  // what it does
  };
  std::vector<ToLeave> BetterLeft() const;

  // Calls `task` once when something changed for the better, in the order of asking.
  void WhenChanged(std::function<void()> task) { waiting_.push_back(std::move(task)); }

  struct Member {
    std::shared_ptr<WorkerLink> link;  // held by whoever runs something there, too
    bool retired = false;
    WorkerView view;
    int64_t places = 0;        // requests that may run and wait there; 0: not known
    absl::Duration room_wait;  // when to come back where none is free
    v1::Model model;
    bool heard = false;                             // of the model at least
    bool connected = false;                         // its stream of states is up
    uint64_t process_id = 0;                        // as it last said; 0: not known
    int64_t watches = 0;                            // streams of states, behind broken ones
    absl::Duration heard_at;                        // when its latest state came
    bool failed = false;                            // since the last state
    absl::StatusCode told = absl::StatusCode::kOk;  // why it cannot be watched, as last logged
    absl::Duration last_state;         // in the future while its next stream is being opened
    std::map<uint64_t, int64_t> sent;  // since the last state: runs and their prompts' tokens
    int64_t sent_tokens = 0;           // of all of them
    int64_t ended = 0;                 // since the last state: runs that it counts
    std::unordered_map<std::string, int64_t> sessions;  // tokens of KV; gone with its process
  };
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  WorkerHealth Health(const Member& member) const;

 private:
  // Runs there now, as far as is known.
  static int64_t Sequences(const Member& member);
  void OnState(Member* member, const worker::v1::WatchResponse& state);
  void OnLost(Member* member, const absl::Status& status);
  Member* Find(const WorkerLink* link) const;
  bool HasSubstitute(const Member& member) const;
  void TellUnreachable(Member* member, const absl::Status& status);
  void TellReadiness();
  void WakeWaiting();

  const base::Clock* clock_;
  LogSink log_;
  std::vector<std::unique_ptr<Member>> members_;
  std::function<void(bool)> on_readiness_;
  std::function<void()> on_trouble_;
  std::function<void(const WorkerSighting&)> on_may_have_crashed_;
  bool ready_ = false;
  uint64_t runs_ = 0;
  std::list<std::function<void()>> waiting_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_SET_H_
