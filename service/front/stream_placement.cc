#include "service/front/stream_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kWorkerWait = absl::Seconds(30);
// Time between two checks by a trial that waits. It checks whether the other streams on its worker
// have ended or are proven.
constexpr absl::Duration kTrialPoll = absl::Milliseconds(50);

FailoverQueue::Kind KindOf(Suspicion suspicion) {
  switch (suspicion) {
    case Suspicion::kNone:
      return FailoverQueue::Kind::kUsual;
    case Suspicion::kSuspect:
      return FailoverQueue::Kind::kSuspect;
    case Suspicion::kAlone:
      return FailoverQueue::Kind::kAlone;
  }
  return FailoverQueue::Kind::kUsual;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void StreamPlacement::GoTo(StreamState next) {
  if (next == state_) return;
  DCHECK(MayFollow(state_, next)) << kStreamStateNames[static_cast<size_t>(state_)] << " to "
                                  << kStreamStateNames[static_cast<size_t>(next)];
  context_.failover->transitions.Note(state_, next);
  state_ = next;
}

void StreamPlacement::GiveTicketUp() {
  ticket_.Reset();
  if (state_ == StreamState::kAlone) GoTo(StreamState::kRunning);
}

WorkerSighting StreamPlacement::Sight() const {
  const WorkerSighting now = context_.workers->Sight(worker_.link);
  if (now.process_id == begun_.process_id) return now;
  // A new process already responds at this address. So return the earlier process, which ran the
  // attempt.
  WorkerSighting begun = begun_;
  begun.at = context_.clock->Monotonic();
  return begun;
}

bool StreamPlacement::MayResume() {
  if (!trial_.IsUnprovenPause() || tried_alone()) return true;
  FailoverQueue& line = context_.failover->queue;
  if (!Contains(line.WithTrials(), worker_.name)) {
    hold_.reset();
    return true;
  }
  const absl::Duration now = context_.clock->Monotonic();
  if (!hold_.has_value() || hold_->attempt != attempt_) {
    hold_ = {.attempt = attempt_, .end = now + kWorkerWait};
  }
  if (now >= hold_->end) return true;
  if (std::exchange(hold_->asks, true)) return false;
  const auto ask = [this, weak = owner_->Life(), attempt = attempt_] {
    const auto self = weak.lock();
    if (self == nullptr || ended() || attempt != attempt_ || !hold_.has_value()) return;
    hold_->asks = false;
    owner_->OnMayResume();
  };
  line.AfterTrial(ask);
  context_.loop->PostAfter(hold_->end - now, ask);
  return false;
}

void StreamPlacement::OnPrepared() {
  trial_.Answer(Sight());
  // If the prompt crashes the worker, the stream may already have ended. So the stream keeps its
  // place in the queue.
  if (tried_alone()) ticket_.HoldFor(CrashEvidence::kLinger);
  if (!tried_alone() || SuspicionAt(StreamStep::kRun) != Suspicion::kAlone) return BeginAttempts();
  failed_workers_.clear();
  failures_ = RetryState();
  GoTo(StreamState::kRunning);
}

void StreamPlacement::BeginAttempts() {
  failed_workers_.clear();
  failures_ = RetryState();
  trial_.Reset();
  GiveTicketUp();
  calm_since_.reset();
}

void StreamPlacement::OnTokens(int64_t count) {
  patience_ = {};
  failures_.OnTokens(count);
  trial_.OnTokens(count);
  // Other streams wait for this stream while its prompt is a suspect.
  if (ticket_.held() && SuspicionAt(StreamStep::kRun) == Suspicion::kNone) {
    GiveTicketUp();
    calm_since_.reset();
  }
}

void StreamPlacement::OnStandstill() {
  trial_.Pause();
  GiveTicketUp();
}

void StreamPlacement::OnFinished() {
  trial_.Reset();
  GiveTicketUp();
}

void StreamPlacement::End() {
  GoTo(StreamState::kEnded);
  trial_.Reset();
  ticket_.Reset();
}

int64_t StreamPlacement::ProofTokens() const {
  return tried_alone() ? context_.failover->evidence.ProofOf(prompt_.content) : 0;
}

PickRequest StreamPlacement::Pick() const {
  PickRequest pick = owner_->MakePick();
  pick.avoid = failed_workers_;
  const FailoverQueue& line = context_.failover->queue;
  const bool suspect = ticket_.held() && kind_ != FailoverQueue::Kind::kUsual;
  pick.spare = suspect ? line.WithSuspects() : line.WithTrials();
  pick.prefer = tried_alone() ? std::vector{ticket_.worker()}
                              : context_.failover->evidence.OnlyAt(prompt_.content);
  pick.fewest = tried_alone();
  for (const std::string& name : pick.prefer) std::erase(pick.spare, name);
  return pick;
}

bool StreamPlacement::AnotherHasRoom() const {
  PickRequest pick = Pick();
  pick.avoid.push_back(worker_.name);
  const absl::StatusOr<PickedWorker> other = context_.workers->Pick(pick, session_id_);
  return other.ok() && !Contains(pick.avoid, other->name);
}

void StreamPlacement::Migrate() {
  context_.workers->NoteDraining(worker_.link);
  ++context_.failover->migrated_total;
  GoTo(StreamState::kMigrating);
  ++attempt_;
  failures_.OnMoved();
  trial_.Reset();
  owner_->Do(StreamStep::kRun);
}

void StreamPlacement::Retry(absl::Status status, EndedBy by, StreamStep step) {
  if (by != EndedBy::kWorker) context_.workers->NoteFailure(worker_.link, status);
  const WorkerSighting worker = Sight();
  const bool unanswered = by == EndedBy::kUnanswered;
  if (by == EndedBy::kCrash || unanswered) context_.failover->evidence.OnCrash(&trial_, worker);
  if (by == EndedBy::kCrash) patience_.begun = false;  // this worker had accepted the step
  GiveAttemptUp();
  if (by == EndedBy::kAway || unanswered) {
    ++patience_.aways;
    last_failure_ = status;
    if (PatienceEnd() <= context_.clock->Monotonic()) return owner_->End(std::move(status));
    return BackOff(step);
  }
  failures_.OnFailure(by, worker);
  last_failure_ = status;
  // Use the worker's own status, because it is more precise. For example, it says that the queue is
  // full or that an expert cannot be read.
  if (by == EndedBy::kWorker && IsExhausted()) return owner_->End(std::move(status));
  if (!EndIfConvicted(step)) BackOff(step);
}

void StreamPlacement::ComeBack(const absl::Status& status) {
  context_.workers->NoteFailure(worker_.link, status);
  GiveAttemptUp();
  patience_.begun = false;
  ++patience_.aways;
  BackOff(StreamStep::kRun);
}

void StreamPlacement::WaitForRoom(absl::Status status) {
  GiveAttemptUp();
  ++patience_.aways;
  if (PatienceEnd() <= context_.clock->Monotonic()) return owner_->End(std::move(status));
  BackOff(StreamStep::kRun);
}

void StreamPlacement::GiveAttemptUp() {
  failed_workers_.push_back(worker_.name);
  lost_worker_ = worker_.name;
  trial_.Reset();
  asked_.reset();
  ++attempt_;
  ticket_.Reset();
}

void StreamPlacement::BackOff(StreamStep step) {
  GoTo(StreamState::kBackingOff);
  const absl::Duration wait =
      Failover::kBackOff.Wait(failures_.setbacks() + patience_.aways, &context_.failover->random);
  Later(wait, &StreamPlacement::Resubmit, step);
}

bool StreamPlacement::IsExhausted() {
  return failures_.Exhausted(
      [workers = context_.workers](const WorkerSighting& seen) { return workers->FateOf(seen); });
}

bool StreamPlacement::IsRefused(StreamStep step) {
  Failover& failover = *context_.failover;
  failover.evidence.Conclude();
  if (failover.evidence.ConvictedSince(prompt_.content, found_at_) &&
      SuspicionAt(step) == Suspicion::kAlone) {
    failover.poisoned.Refuse(prompt_.sent);
  }
  return failover.poisoned.Refuses(prompt_.sent);
}

bool StreamPlacement::EndIfConvicted(StreamStep step) {
  if (IsRefused(step)) {
    owner_->End(
        absl::InternalError(absl::StrCat(context_.failover->evidence.CrashesOf(prompt_.content),
                                         " workers crashed while they computed this prompt, one of "
                                         "them while no other request could "
                                         "be the cause; the prompt is refused to its sender for ",
                                         absl::FormatDuration(PoisonedPrompts::kRefusedFor),
                                         "; the last: ", last_failure_.message())));
  } else if (IsExhausted()) {
    owner_->End(absl::InternalError(
        absl::StrCat(RetryState::kMaxAttempts,
                     " attempts at this request failed; the last: ", last_failure_.message())));
  } else if (context_.clock->Monotonic() >= deadline_) {
    owner_->End(absl::DeadlineExceededError(absl::StrCat(
        "the deadline passed before another worker accepted the request; the last failure: ",
        last_failure_.message())));
  }
  return ended();
}

Suspicion StreamPlacement::SuspicionAt(StreamStep step) const {
  if (step != StreamStep::kPrepare && step != StreamStep::kRun) return Suspicion::kNone;
  return context_.failover->evidence.Of(prompt_.content, owner_->reported());
}

void StreamPlacement::Try(StreamStep step) {
  if (tried_alone() && SuspicionAt(step) == Suspicion::kAlone) {
    GoTo(StreamState::kInLine);  // it is still this stream's turn
    return owner_->Do(step);
  }
  const bool fresh = failed_workers_.empty() && SuspicionAt(step) == Suspicion::kNone;
  fresh ? owner_->Do(step) : Resubmit(step);
}

void StreamPlacement::Resubmit(StreamStep step) {
  ticket_.Reset();
  if (EndIfConvicted(step)) return;
  GoTo(StreamState::kInLine);
  const Suspicion suspicion = SuspicionAt(step);
  if (suspicion == Suspicion::kAlone) {
    const absl::Duration now = context_.clock->Monotonic();
    if (!calm_since_.has_value()) calm_since_ = now;
    const absl::Duration wait = context_.failover->evidence.CalmIn(prompt_.content, *calm_since_);
    if (wait > absl::ZeroDuration()) return Later(wait, &StreamPlacement::Resubmit, step);
  } else {
    calm_since_.reset();
  }
  kind_ = KindOf(suspicion);
  const auto go = [this, weak = owner_->Life(), step] {
    if (const auto self = weak.lock(); self && !ended()) OnTurnInLine(step);
  };
  ticket_ = context_.failover->queue.Enter(kind_, model_, go);
}

void StreamPlacement::OnTurnInLine(StreamStep step) {
  if (EndIfConvicted(step)) return;
  const bool changed = KindOf(SuspicionAt(step)) != kind_;
  const bool unrest =
      kind_ == FailoverQueue::Kind::kAlone &&
      context_.failover->evidence.CalmIn(prompt_.content, *calm_since_) > absl::ZeroDuration();
  changed || unrest ? Resubmit(step) : owner_->Do(step);
}

void StreamPlacement::Later(absl::Duration wait, void (StreamPlacement::*then)(StreamStep),
                            StreamStep step) {
  context_.loop->PostAfter(wait, [this, weak = owner_->Life(), then, step] {
    if (const auto self = weak.lock(); self && !ended()) (this->*then)(step);
  });
}

bool StreamPlacement::TakeWorker(StreamStep step) {
  absl::StatusOr<PickedWorker> worker = context_.workers->Pick(Pick(), session_id_);
  if (!worker.ok()) {
    WaitForWorkers(step, worker.status());
    return false;
  }
  if (WaitsAt(*worker, step)) return false;
  worker_ = *std::move(worker);
  begun_ = context_.workers->Sight(worker_.link);
  ticket_.GoTo(worker_.name);
  GoTo(tried_alone() ? StreamState::kAlone : StreamState::kRunning);
  const bool prepares = step == StreamStep::kPrepare;
  trial_ = context_.failover->evidence.Begin(
      {.worker = worker_.link,
       .name = worker_.name,
       .prompt = prompt_.content,
       .sender = prompt_.sent,
       .place = owner_->reported(),
       .prepares = prepares,
       .under = tried_alone() ? Suspicion::kAlone : Suspicion::kNone});
  if (prepares) {
    asked_ = step;
    return true;
  }
  if (!lost_worker_.empty() && worker_.name != lost_worker_) ++context_.failover->moved_total;
  lost_worker_.clear();
  return true;
}

bool StreamPlacement::TakeAnyWorker(StreamStep step) {
  absl::StatusOr<PickedWorker> worker = context_.workers->Pick(Pick(), session_id_);
  if (!worker.ok()) {
    WaitForWorkers(step, worker.status());
    return false;
  }
  worker_ = *std::move(worker);
  begun_ = context_.workers->Sight(worker_.link);
  asked_ = step;
  GoTo(StreamState::kRunning);
  return true;
}

bool StreamPlacement::WaitsAt(const PickedWorker& worker, StreamStep step) {
  Failover& failover = *context_.failover;
  if (tried_alone()) {
    ticket_.GoTo(worker.name);  // from now on, no other stream is sent to this worker
    if (failover.evidence.UnprovenBeside(worker.link, prompt_.content) == 0) return false;
    GoTo(StreamState::kInLine);
    Later(kTrialPoll, &StreamPlacement::OnTurnInLine, step);
    return true;
  }
  if (!Contains(failover.queue.WithTrials(), worker.name)) return false;
  const absl::Duration left = PatienceEnd() - context_.clock->Monotonic();
  if (left <= absl::ZeroDuration()) return false;
  ticket_.Reset();  // other streams may start before the trial ends
  GoTo(StreamState::kWaitingForWorker);
  const auto resume = ResumeOnce(step);
  failover.queue.AfterTrial(resume);
  context_.workers->WhenChanged(resume);
  context_.loop->PostAfter(left, resume);
  return true;
}

std::function<void()> StreamPlacement::ResumeOnce(StreamStep step) {
  return [this, weak = owner_->Life(), wait = ++waits_, step] {
    const auto self = weak.lock();
    if (self == nullptr || ended() || waits_ != wait) return;
    ++waits_;
    Try(step);
  };
}

absl::Duration StreamPlacement::PatienceEnd() {
  if (!std::exchange(patience_.begun, true)) {
    patience_.end = std::min(context_.clock->Monotonic() + kWorkerWait, deadline_);
  }
  return patience_.end;
}

void StreamPlacement::WaitForWorkers(StreamStep step, absl::Status reason) {
  ticket_.Reset();
  const absl::Duration now = context_.clock->Monotonic();
  if (now >= PatienceEnd()) return owner_->End(std::move(reason));
  GoTo(StreamState::kWaitingForWorker);
  const auto resume = ResumeOnce(step);
  context_.workers->WhenChanged(resume);
  // Also try when the time has passed. That attempt ends the stream.
  context_.loop->PostAfter(patience_.end - now, resume);
}

}  // namespace tidepool::service
