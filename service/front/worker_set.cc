#include "service/front/worker_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/base/model_identity.h"

namespace tidepool::service {
namespace {

// A worker is suspect if no state arrives for this time: four states are missing.
constexpr absl::Duration kSilence = absl::Seconds(1);
// After a stream has broken, states that were sent earlier arrive within this time.
constexpr absl::Duration kOnItsWay = absl::Seconds(1);
// The maximum for each worker. This is far more than the number of sessions whose KV its cache can
// hold.
constexpr size_t kMaxSessions = 4096;

// A newer worker may report a state that is unknown here. An unknown state does not mean that the
// worker accepts requests.
WorkerHealth HealthOf(worker::v1::WorkerState state) {
  if (state == worker::v1::STUCK) return WorkerHealth::kSuspect;
  const bool serves = state == worker::v1::SERVING || state == worker::v1::WORKER_STATE_UNSPECIFIED;
  return serves ? WorkerHealth::kServing : WorkerHealth::kDraining;
}

// Logs each reason only once, because the link keeps trying to connect.
void TellUnreachable(const LogSink& log, WorkerSet::Member* member, const absl::Status& status) {
  if (std::exchange(member->reported, status.code()) == status.code()) return;
  const absl::string_view reason =
      absl::IsUnimplemented(status) ? "the endpoint is not a Tidepool worker" : status.message();
  log(LogLevel::kWarn,
      absl::StrCat("worker at ", member->link->address(), " cannot be watched: ", reason));
}

}  // namespace

void WorkerSet::Add(std::shared_ptr<WorkerLink> link) {
  members_.push_back(std::make_unique<Member>());
  Member* member = members_.back().get();
  member->link = std::move(link);
  member->link->Watch(
      [this, member](const worker::v1::WatchResponse& state) { OnState(member, state); },
      [this, member](const absl::Status& status) { OnLost(member, status); });
}

bool WorkerSet::Retire(const WorkerLink* link) {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [link](const auto& one) { return one->link.get() == link; });
  if (found == members_.end()) return true;
  Member& member = **found;
  if (!std::exchange(member.retired, true)) {
    log_(LogLevel::kInfo, absl::StrCat("worker at ", link->address(),
                                       " is no longer configured, and gets no new requests"));
    TellReadiness();
  }
  if (member.link.use_count() > 1) return false;
  members_.erase(found);
  return true;
}

void WorkerSet::Rejoin(const WorkerLink* link) {
  Member* member = Find(link);
  if (member == nullptr || !std::exchange(member->retired, false)) return;
  TellReadiness();
  waiting_.RunAll();
}

WorkerHealth WorkerSet::Health(const Member& member) const {
  if (!member.connected) return WorkerHealth::kDown;
  if (member.retired || member.view.health == WorkerHealth::kDraining) {
    return WorkerHealth::kDraining;
  }
  if (member.failed || clock_->Monotonic() - member.last_state > kSilence) {
    return WorkerHealth::kSuspect;
  }
  return member.view.health;
}

absl::StatusOr<PickedWorker> WorkerSet::Pick(const PickRequest& request,
                                             const std::string& session_id) const {
  std::vector<WorkerView> views;
  for (const auto& member : members_) {
    WorkerView view = member->view;
    view.health = Health(*member);
    if (view.sequences <= member->ended) view.queued_prompt_tokens = 0;
    view.queued_prompt_tokens += member->sent_tokens;
    view.sequences = Sequences(*member);
    const auto session = member->sessions.find(session_id);
    if (session != member->sessions.end()) view.session_tokens = session->second;
    views.push_back(std::move(view));
  }
  const std::optional<size_t> picked = PickWorker(views, request);
  if (!picked.has_value()) {
    PickRequest any = request;
    any.strictly = false;
    return absl::UnavailableError(
        PickWorker(views, any).has_value()
            ? "no worker that supports all fields of this request accepts requests now; the others "
              "have an older release: upgrade them"
            : "no worker of this model accepts requests now; retry later");
  }
  return PickedWorker{.link = members_[*picked]->link.get(),
                      .name = views[*picked].name,
                      .numerics_id = views[*picked].numerics_id,
                      .hold = members_[*picked]->link};
}

int64_t WorkerSet::Sequences(const Member& member) {
  return std::max<int64_t>(member.view.sequences - member.ended, 0) +
         static_cast<int64_t>(member.sent.size());
}

absl::Status WorkerSet::CheckRoom(absl::string_view model_digest) const {
  int64_t sequences = 0;
  absl::Duration wait = absl::InfiniteDuration();
  for (const auto& member : members_) {
    if (!SameModel(member->view.model_digest, model_digest)) continue;
    if (Health(*member) != WorkerHealth::kServing) continue;
    const int64_t here = Sequences(*member);
    if (member->places == 0 || here < member->places) return absl::OkStatus();
    // A request that was sent recently may be counted twice. But the worker cannot have more
    // requests than slots.
    sequences += std::min(here, member->places);
    wait = std::min(wait, member->room_wait);
  }
  if (wait == absl::InfiniteDuration()) return absl::OkStatus();  // no worker serves the model now
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(
          absl::StrCat("the queue is full: ", sequences, " requests run or wait; retry later")),
      wait);
}

bool WorkerSet::ServedElsewhere(const WorkerLink* link, int32_t understands) const {
  const Member* member = Find(link);
  if (member == nullptr) return false;
  return std::any_of(members_.begin(), members_.end(), [&](const auto& other) {
    return other.get() != member &&
           SameModel(other->view.model_digest, member->view.model_digest) &&
           other->view.understands >= understands && Health(*other) == WorkerHealth::kServing;
  });
}

void WorkerSet::NoteUnderstands(const WorkerLink* link, int32_t understands) {
  Member* member = Find(link);
  if (member == nullptr) return;
  member->view.understands = std::max(member->view.understands, understands);
}

WorkerSet::Member* WorkerSet::Find(const WorkerLink* link) const {
  for (const auto& member : members_) {
    if (member->link.get() == link) return member.get();
  }
  return nullptr;
}

uint64_t WorkerSet::NoteSent(const WorkerLink* link, int64_t prompt_tokens) {
  const uint64_t run = ++runs_;
  Member* member = Find(link);
  if (member == nullptr) return run;
  member->sent[run] = prompt_tokens;
  member->sent_tokens += prompt_tokens;
  log_(LogLevel::kDebug, absl::StrCat("run ", run, " of ", prompt_tokens,
                                      " prompt tokens begins at ", member->view.name));
  return run;
}

void WorkerSet::NoteEnded(const WorkerLink* link, uint64_t run) {
  Member* member = Find(link);
  if (member == nullptr) return;
  if (const auto sent = member->sent.find(run); sent != member->sent.end()) {
    member->sent_tokens -= sent->second;
    member->sent.erase(sent);
  } else {
    ++member->ended;
  }
  log_(LogLevel::kDebug, absl::StrCat("run ", run, " at ", member->view.name, " has ended"));
}

void WorkerSet::NoteSession(const WorkerLink* link, const std::string& session_id, int64_t tokens) {
  Member* member = Find(link);
  if (member == nullptr || !member->connected) return;
  auto& sessions = member->sessions;
  // Forget any one session. The only effect is that its next turn may go to another worker.
  if (sessions.size() >= kMaxSessions && !sessions.contains(session_id)) {
    sessions.erase(sessions.begin());
  }
  sessions[session_id] = tokens;
}

void WorkerSet::NoteFailure(const WorkerLink* link, const absl::Status& status) {
  Member* member = Find(link);
  if (member == nullptr || std::exchange(member->failed, true)) return;
  log_(LogLevel::kWarn, absl::StrCat("worker ", member->view.name, " (", link->address(),
                                     ") failed a call: ", status.message()));
  if (on_trouble_) on_trouble_();
}

void WorkerSet::NoteDraining(const WorkerLink* link) {
  Member* member = Find(link);
  if (member == nullptr) return;
  member->view.health = WorkerHealth::kDraining;
  TellReadiness();
}

WorkerSighting WorkerSet::Sight(const WorkerLink* link) const {
  const Member* member = Find(link);
  if (member == nullptr) return {.link = link};
  return {.link = link,
          .process_id = member->process_id,
          .watches = member->watches,
          .at = clock_->Monotonic()};
}

Fate WorkerSet::FateOf(const WorkerSighting& seen) const {
  const Member* member = Find(seen.link);
  if (member == nullptr || seen.process_id == 0 || member->process_id != seen.process_id) {
    return Fate::kGone;
  }
  const bool says_on = member->connected && member->heard_at >= seen.at + kOnItsWay;
  return member->watches > seen.watches || says_on ? Fate::kLives : Fate::kOpen;
}

void WorkerSet::OnState(Member* member, const worker::v1::WatchResponse& state) {
  const bool better = Health(*member) != WorkerHealth::kServing;
  WorkerView& view = member->view;
  view.name = state.worker_id();
  view.health = HealthOf(state.state());
  view.model = state.model().name();
  view.model_digest = ModelIdentity(state.model());
  view.numerics_id = state.model().numerics_id();
  view.sequences = state.sequences_running() + state.sequences_waiting();
  view.queued_prompt_tokens = state.queued_prompt_tokens();
  view.prefill_tokens_per_second = state.prefill_tokens_per_second();
  view.prefixes = std::make_shared<const std::unordered_set<uint64_t>>(
      state.prefix_digests().begin(), state.prefix_digests().end());
  // If the process is the same, the value that it reported with a prompt is still valid.
  const bool same = member->connected && member->process_id == state.process_id();
  view.understands = std::max(state.understands(), same ? view.understands : 0);
  member->places = state.places();
  member->room_wait = absl::Seconds(state.room_wait_seconds());
  if (!member->connected) {
    log_(LogLevel::kInfo, absl::StrCat("worker ", view.name, " (", member->link->address(),
                                       ") serves ", view.model));
  }
  if (!member->connected) ++member->watches;
  member->process_id = state.process_id();
  member->model = state.model();
  member->heard = true;
  member->connected = true;
  member->failed = false;
  member->reported = absl::StatusCode::kOk;
  member->last_state = clock_->Monotonic();
  member->heard_at = member->last_state;
  member->sent.clear();
  member->sent_tokens = 0;
  member->ended = 0;
  TellReadiness();
  if (better && Health(*member) == WorkerHealth::kServing) waiting_.RunAll();
}

void WorkerSet::OnLost(Member* member, const absl::Status& status) {
  if (status.ok()) {
    // A new connection must be opened before the next state can arrive, so allow time for it.
    member->last_state = clock_->Monotonic() + kWorkerConnectTimeout;
    return;
  }
  const bool leaves = Health(*member) == WorkerHealth::kDraining;
  if (!std::exchange(member->connected, false)) return TellUnreachable(log_, member, status);
  if (!leaves && on_may_have_crashed_) on_may_have_crashed_(Sight(member->link.get()));
  // The next process at this address has another KV cache.
  member->sessions.clear();
  log_(LogLevel::kWarn, absl::StrCat("worker ", member->view.name, " (", member->link->address(),
                                     ") is lost: ", status.message()));
  TellReadiness();
  if (on_trouble_) on_trouble_();
}

void WorkerSet::TellReadiness() {
  const bool ready = std::any_of(members_.begin(), members_.end(), [](const auto& member) {
    return member->connected && !member->retired && member->view.health == WorkerHealth::kServing;
  });
  if (ready == ready_) return;
  ready_ = ready;
  if (on_readiness_) on_readiness_(ready);
}

int64_t CountServing(const WorkerSet& workers, const std::string& model_digest) {
  const auto& members = workers.members();
  return std::count_if(members.begin(), members.end(), [&](const auto& member) {
    return SameModel(member->view.model_digest, model_digest) &&
           workers.Health(*member) == WorkerHealth::kServing;
  });
}

bool AllUnderstand(const WorkerSet& workers, int32_t understands) {
  const auto& members = workers.members();
  return std::all_of(members.begin(), members.end(), [understands](const auto& member) {
    return !member->heard || member->view.understands >= understands;
  });
}

}  // namespace tidepool::service
