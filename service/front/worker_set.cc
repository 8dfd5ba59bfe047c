#include "service/front/worker_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/retry_after.h"
#include "service/base/model_identity.h"

namespace tidepool::service {
namespace {

// Four states are missed.
constexpr absl::Duration kSilence = absl::Seconds(1);
// Eight are: more than a hiccup of a machine, and a client waits for its next token.
constexpr absl::Duration kLongSilence = absl::Seconds(2);
// What a stream that breaks can still bring of before comes sooner.
constexpr absl::Duration kOnItsWay = absl::Seconds(1);
// Of each worker; far more than its KV cache holds.
constexpr size_t kMaxSessions = 4096;

// A state that is not known, of a newer worker, does not say that it takes work.
WorkerHealth HealthOf(worker::v1::WorkerState state) {
  if (state == worker::v1::STUCK) return WorkerHealth::kSuspect;
  const bool serves = state == worker::v1::SERVING || state == worker::v1::WORKER_STATE_UNSPECIFIED;
  return serves ? WorkerHealth::kServing : WorkerHealth::kDraining;
}

bool HasAlias(const v1::Model& model, absl::string_view name) {
  const auto& aliases = model.aliases();
  return std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

// All that select one, aliases first, each once.
std::vector<absl::string_view> NamesOf(const std::vector<v1::Model>& models) {
  std::vector<absl::string_view> names;
  const auto add = [&names](absl::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const v1::Model& model : models) {
    for (const std::string& alias : model.aliases()) add(alias);
    add(model.name());
  }
  return names;
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
    log_(LogLevel::kInfo,
         absl::StrCat("worker at ", link->address(), " is no longer named, and gets no new work"));
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
  WakeWaiting();
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

std::vector<v1::Model> WorkerSet::Models() const {
  std::vector<v1::Model> models;
  for (const auto& member : members_) {
    if (!member->heard || member->retired) continue;
    const auto known = std::find_if(models.begin(), models.end(), [&](const v1::Model& model) {
      return model.name() == member->model.name() &&
             SameModel(ModelIdentity(model), ModelIdentity(member->model));
    });
    if (known == models.end()) {
      models.push_back(member->model);
      continue;
    }
    if (known->content_digest().empty()) {
      known->set_content_digest(member->model.content_digest());
    }
    for (const std::string& alias : member->model.aliases()) {
      if (!HasAlias(*known, alias)) known->add_aliases(alias);
    }
  }
  return models;
}

absl::StatusOr<v1::Model> WorkerSet::FindModel(absl::string_view name) const {
  std::vector<v1::Model> models = Models();
  if (models.empty()) {
    return absl::UnavailableError("no worker has answered yet; start one, or retry later");
  }
  const bool one_name = std::all_of(models.begin(), models.end(), [&](const v1::Model& model) {
    return model.name() == models[0].name();
  });
  if (name.empty() && one_name) return std::move(models[0]);
  for (v1::Model& model : models) {
    if (model.name() == name) return std::move(model);
  }
  for (v1::Model& model : models) {
    if (HasAlias(model, name)) return std::move(model);
  }
  const std::string served = absl::StrJoin(NamesOf(models), ", ");
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model is unset and several are served; set it to one of: ", served));
  }
  return absl::NotFoundError(absl::StrCat("model '", name, "' is not served; served: ", served));
}

absl::StatusOr<v1::Model> WorkerSet::FindModel(absl::string_view name,
                                               absl::string_view digest) const {
  for (v1::Model& model : Models()) {
    if (model.name() == name && SameModel(ModelIdentity(model), digest)) return std::move(model);
  }
  return FindModel(name);
}

absl::StatusOr<std::vector<const WorkerSet::Member*>> WorkerSet::Named(
    const std::optional<std::string>& name) const {
  std::vector<const Member*> named;
  for (const auto& member : members_) {
    if (!name.has_value() || *name == member->view.name) named.push_back(member.get());
  }
  if (!named.empty() || !name.has_value()) return named;
  return absl::NotFoundError(absl::StrCat("no worker has the id '", *name, "'"));
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
    return absl::UnavailableError("no worker of this model takes work now; retry later");
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
    // A request that was sent lately can be counted twice, and no more than its places are taken.
    sequences += std::min(here, member->places);
    wait = std::min(wait, member->room_wait);
  }
  if (wait == absl::InfiniteDuration()) return absl::OkStatus();  // there is nobody to say so
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(
          absl::StrCat("the queue is full: ", sequences, " requests run or wait; retry later")),
      wait);
}

std::vector<WorkerSet::ToLeave> WorkerSet::BetterLeft() const {
  std::vector<ToLeave> left;
  for (const auto& member : members_) {
    if (!member->connected) continue;
    const bool silent = clock_->Monotonic() - member->last_state >= kLongSilence;
    const bool stuck = member->view.health == WorkerHealth::kSuspect;
    if ((!silent && !stuck) || !HasSubstitute(*member)) continue;
    left.push_back(
        {.link = member->link.get(),
         .why = silent ? "says nothing any more" : "says that it cannot serve all requests"});
  }
  return left;
}

int64_t WorkerSet::Serving(const std::string& model_digest) const {
  return std::count_if(members_.begin(), members_.end(), [&](const auto& member) {
    return SameModel(member->view.model_digest, model_digest) &&
           Health(*member) == WorkerHealth::kServing;
  });
}

bool WorkerSet::ServedElsewhere(const WorkerLink* link) const {
  const Member* member = Find(link);
  return member != nullptr && HasSubstitute(*member);
}

bool WorkerSet::HasSubstitute(const Member& member) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& other) {
    return other.get() != &member &&
           SameModel(other->view.model_digest, member.view.model_digest) &&
           Health(*other) == WorkerHealth::kServing;
  });
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
  // Any of them: what is forgotten costs a turn its best worker, no more.
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
          .at = clock_->Monotonic(),
          .heard = member->heard_at};
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
  member->told = absl::StatusCode::kOk;
  member->last_state = clock_->Monotonic();
  member->heard_at = member->last_state;
  member->sent.clear();
  member->sent_tokens = 0;
  member->ended = 0;
  TellReadiness();
  if (better && Health(*member) == WorkerHealth::kServing) WakeWaiting();
}

void WorkerSet::OnLost(Member* member, const absl::Status& status) {
  if (status.ok()) {
    // No state can come before the next stream's connection is there.
    member->last_state = clock_->Monotonic() + kWorkerConnectTimeout;
    return;
  }
  const bool leaves = Health(*member) == WorkerHealth::kDraining;
  if (!std::exchange(member->connected, false)) return TellUnreachable(member, status);
  if (!leaves && on_may_have_crashed_) on_may_have_crashed_(Sight(member->link.get()));
  // Whoever comes back at this address may be a new process.
  member->sessions.clear();
  log_(LogLevel::kWarn, absl::StrCat("worker ", member->view.name, " (", member->link->address(),
                                     ") is lost: ", status.message()));
  TellReadiness();
  if (on_trouble_) on_trouble_();
}

// Once for each reason: the link goes on trying.
void WorkerSet::TellUnreachable(Member* member, const absl::Status& status) {
  if (std::exchange(member->told, status.code()) == status.code()) return;
  const absl::string_view reason =
      absl::IsUnimplemented(status) ? "what answers there is no Tidepool worker" : status.message();
  log_(LogLevel::kWarn,
       absl::StrCat("worker at ", member->link->address(), " cannot be watched: ", reason));
}

void WorkerSet::TellReadiness() {
  const bool ready = std::any_of(members_.begin(), members_.end(), [](const auto& member) {
    return member->connected && !member->retired && member->view.health == WorkerHealth::kServing;
  });
  if (ready == ready_) return;
  ready_ = ready;
  if (on_readiness_) on_readiness_(ready);
}

void WorkerSet::WakeWaiting() {
  std::list<std::function<void()>> tasks;
  tasks.swap(waiting_);
  for (const auto& task : tasks) task();
}

}  // namespace tidepool::service
