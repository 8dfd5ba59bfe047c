// Generation's part over workers that fail, are full, or are not there.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/front/generation.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kWorkerWait = absl::Seconds(30);
// Between two looks at streams beside which a prompt cannot be tried by itself.
constexpr absl::Duration kLook = absl::Milliseconds(50);

Resubmissions::Kind KindOf(Suspicion suspicion) {
  switch (suspicion) {
    case Suspicion::kNone:
      return Resubmissions::Kind::kUsual;
    case Suspicion::kSuspect:
      return Resubmissions::Kind::kSuspect;
    case Suspicion::kAlone:
      return Resubmissions::Kind::kAlone;
  }
  return Resubmissions::Kind::kUsual;
}

}  // namespace

bool IsWorkerFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

void Generation::BeginAttempts() {
  failed_workers_.clear();
  record_ = AttemptRecord();
  trial_.Reset();
  ticket_.Reset();
  calm_since_.reset();
}

void Generation::OnTokensMade(int64_t count) {
  waited_ = false;
  aways_ = 0;
  record_.OnTokens(count);
  trial_.OnTokens(count);
  // A suspect keeps others waiting until it is none.
  if (ticket_.held() && SuspicionAt(&Generation::Run) == Suspicion::kNone) {
    ticket_.Reset();
    calm_since_.reset();
  }
}

void Generation::OnRunEnd(int32_t attempt, absl::Status status, EndedBy by) {
  if (sink_ == nullptr || attempt != attempt_) return;
  call_.reset();
  if (finish_received_) return;
  LeaveWorker();
  if (by == EndedBy::kDrain) return Migrate();
  if (status.ok()) status = absl::UnknownError("the stream ended without a finish");
  if (IsWorkerFailure(status)) {
    // A worker that had nothing to compute, because the client takes nothing, did not fail at this.
    const bool idle = granted_ == told();
    if (idle && (by == EndedBy::kCrash || by == EndedBy::kSilent)) return ComeBack(status);
    return Retry(std::move(status), by, &Generation::Run);
  }
  // A full queue is told by a worker that is well; another may have room.
  if (absl::IsResourceExhausted(status)) {
    const bool passes = base::RetryAfterOf(status).has_value();
    if (passes && !output_ids_.empty()) return WaitForRoom(std::move(status));
    if (AnotherHasRoom()) return Retry(std::move(status), by, &Generation::Run);
  }
  End(std::move(status));
}

void Generation::LeaveDrainingWorker() {
  context_.workers->NoteDraining(worker_.link);
  if (context_.workers->ServedElsewhere(worker_.link)) {
    call_.reset();
    LeaveWorker();
    return Migrate();
  }
  context_.workers->WhenChanged([weak = weak_from_this(), attempt = attempt_] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->attempt_ != attempt) return;
    if (self->call_ != nullptr && !self->finish_received_) self->LeaveDrainingWorker();
  });
}

void Generation::Migrate() {
  context_.workers->NoteDraining(worker_.link);
  ++context_.failover->migrated_total;
  ++attempt_;
  record_.OnMoved();
  trial_.Reset();
  Run();
}

bool Generation::AnotherHasRoom() const {
  PickRequest pick = MakePick();
  pick.avoid.push_back(worker_.name);
  const absl::StatusOr<PickedWorker> other =
      context_.workers->Pick(pick, input_.request.session_id());
  return other.ok() &&
         std::find(pick.avoid.begin(), pick.avoid.end(), other->name) == pick.avoid.end();
}

void Generation::Retry(absl::Status status, EndedBy by, void (Generation::*step)()) {
  if (by != EndedBy::kWorker) context_.workers->NoteFailure(worker_.link, status);
  const WorkerSighting worker = context_.workers->Sight(worker_.link);
  if (by == EndedBy::kCrash) {
    context_.failover->evidence.OnCrash(&trial_, worker);
    waited_ = false;  // for a worker that takes it, and this one did
  }
  GiveAttemptUp();
  if (by == EndedBy::kAway) {
    ++aways_;
    if (PatienceEnd() <= context_.clock->Monotonic()) return End(std::move(status));
    return BackOff(step);
  }
  record_.OnFailure(by, worker);
  last_failure_ = status;
  // A worker's own word tells more, such as of a full queue or an expert that cannot be read.
  if (by == EndedBy::kWorker && IsExhausted()) return End(std::move(status));
  if (!EndIfConvicted()) BackOff(step);
}

void Generation::ComeBack(const absl::Status& status) {
  context_.workers->NoteFailure(worker_.link, status);
  GiveAttemptUp();
  waited_ = false;
  ++aways_;
  BackOff(&Generation::Run);
}

void Generation::WaitForRoom(absl::Status status) {
  GiveAttemptUp();
  ++aways_;
  if (PatienceEnd() <= context_.clock->Monotonic()) return End(std::move(status));
  BackOff(&Generation::Run);
}

void Generation::GiveAttemptUp() {
  failed_workers_.push_back(worker_.name);
  lost_worker_ = worker_.name;
  trial_.Reset();
  asked_ = nullptr;
  ++attempt_;
  ticket_.Reset();
}

void Generation::BackOff(void (Generation::*step)()) {
  const absl::Duration wait =
      Failover::kBackOff.Wait(record_.setbacks() + aways_, &context_.failover->random);
  context_.loop->PostAfter(wait, [weak = weak_from_this(), step] {
    if (const auto self = weak.lock(); self && self->sink_ != nullptr) self->Resubmit(step);
  });
}

bool Generation::IsExhausted() {
  return record_.Exhausted(
      [workers = context_.workers](const WorkerSighting& seen) { return workers->FateOf(seen); });
}

bool Generation::EndIfConvicted() {
  Failover& failover = *context_.failover;
  failover.evidence.Conclude();
  if (failover.poisoned.Refuses(prompt_digest_)) {
    End(absl::InternalError(absl::StrCat(
        failover.evidence.CrashesOf(prompt_digest_),
        " workers crashed while they computed this prompt, one of them while nothing else ran that "
        "could be the cause; it is refused to its sender for ",
        absl::FormatDuration(PoisonedPrompts::kRefusedFor), "; the last: ",
        last_failure_.message())));
  } else if (IsExhausted()) {
    End(absl::InternalError(absl::StrCat(AttemptRecord::kMaxAttempts,
                                         " attempts at this request failed; the last: ",
                                         last_failure_.message())));
  } else if (context_.clock->Monotonic() >= input_.deadline) {
    End(absl::DeadlineExceededError(absl::StrCat(
        "the deadline passed before another worker took the request; the last failure: ",
        last_failure_.message())));
  }
  return sink_ == nullptr;
}

Suspicion Generation::SuspicionAt(void (Generation::*step)()) const {
  CrashEvidence& evidence = context_.failover->evidence;
  if (step == &Generation::Prepare) return evidence.Of(prompt_digest_, CrashEvidence::kPreparing);
  if (step != &Generation::Run) return Suspicion::kNone;
  return evidence.Of(prompt_digest_, told());
}

void Generation::Try(void (Generation::*step)()) {
  const bool fresh = failed_workers_.empty() && SuspicionAt(step) == Suspicion::kNone;
  fresh ? (this->*step)() : Resubmit(step);
}

void Generation::Resubmit(void (Generation::*step)()) {
  ticket_.Reset();
  if (EndIfConvicted()) return;
  const Suspicion suspicion = SuspicionAt(step);
  if (suspicion == Suspicion::kAlone) {
    const absl::Duration now = context_.clock->Monotonic();
    if (!calm_since_.has_value()) calm_since_ = now;
    const absl::Duration wait = context_.failover->evidence.CalmIn(prompt_digest_, *calm_since_);
    if (wait > absl::ZeroDuration()) return Later(wait, &Generation::Resubmit, step);
  } else {
    calm_since_.reset();
  }
  kind_ = KindOf(suspicion);
  const auto go = [weak = weak_from_this(), step] {
    if (const auto self = weak.lock(); self && self->sink_ != nullptr) self->OnTurnInLine(step);
  };
  ticket_ = context_.failover->resubmissions.Enter(kind_, model_.digest(), go);
}

void Generation::OnTurnInLine(void (Generation::*step)()) {
  if (EndIfConvicted()) return;
  const bool changed = KindOf(SuspicionAt(step)) != kind_;
  const bool unrest =
      kind_ == Resubmissions::Kind::kAlone &&
      context_.failover->evidence.CalmIn(prompt_digest_, *calm_since_) > absl::ZeroDuration();
  changed || unrest ? Resubmit(step) : (this->*step)();
}

void Generation::Later(absl::Duration wait, void (Generation::*then)(void (Generation::*)()),
                       void (Generation::*step)()) {
  context_.loop->PostAfter(wait, [weak = weak_from_this(), then, step] {
    if (const auto self = weak.lock(); self && self->sink_ != nullptr) (self.get()->*then)(step);
  });
}

bool Generation::TakeWorker(void (Generation::*step)()) {
  absl::StatusOr<PickedWorker> worker =
      context_.workers->Pick(MakePick(), input_.request.session_id());
  if (!worker.ok()) {
    WaitForWorkers(step, worker.status());
    return false;
  }
  if (WaitsAt(*worker, step)) return false;
  worker_ = *std::move(worker);
  ticket_.GoTo(worker_.name);
  const bool prepares = step == &Generation::Prepare;
  trial_ = context_.failover->evidence.Begin(
      {.worker = worker_.link,
       .prompt = prompt_digest_,
       .place = prepares ? CrashEvidence::kPreparing : told(),
       .under = tried_alone() ? Suspicion::kAlone : Suspicion::kNone});
  return true;
}

bool Generation::WaitsAt(const PickedWorker& worker, void (Generation::*step)()) {
  Failover& failover = *context_.failover;
  if (tried_alone()) {
    ticket_.GoTo(worker.name);  // from now on nothing else is sent there
    if (failover.evidence.UnprovenBeside(worker.link, prompt_digest_) == 0) return false;
    Later(kLook, &Generation::OnTurnInLine, step);
    return true;
  }
  const std::vector<std::string> trials = failover.resubmissions.WithTrials();
  if (std::find(trials.begin(), trials.end(), worker.name) == trials.end()) return false;
  const absl::Duration left = PatienceEnd() - context_.clock->Monotonic();
  if (left <= absl::ZeroDuration()) return false;
  const auto resume = ResumeOnce(step);
  failover.resubmissions.AfterTrial(resume);
  context_.loop->PostAfter(left, resume);
  return true;
}

std::function<void()> Generation::ResumeOnce(void (Generation::*step)()) {
  return [weak = weak_from_this(), wait = ++waits_, step] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->waits_ != wait) return;
    ++self->waits_;
    self->Try(step);
  };
}

absl::Duration Generation::PatienceEnd() {
  if (!std::exchange(waited_, true)) {
    give_up_ = std::min(context_.clock->Monotonic() + kWorkerWait, input_.deadline);
  }
  return give_up_;
}

void Generation::WaitForWorkers(void (Generation::*step)(), absl::Status reason) {
  ticket_.Reset();
  const absl::Duration now = context_.clock->Monotonic();
  if (now >= PatienceEnd()) return End(std::move(reason));
  const auto resume = ResumeOnce(step);
  context_.workers->WhenChanged(resume);
  // One more try then, which finds the time over.
  context_.loop->PostAfter(give_up_ - now, resume);
}

void Generation::LeaveHanging(const WorkerLink* link, absl::string_view why) {
  if (sink_ == nullptr || worker_.link != link) return;
  const absl::Status silent =
      absl::UnavailableError(absl::StrCat("worker ", worker_.name, " ", why));
  if (call_ != nullptr) return OnRunEnd(attempt_, silent, EndedBy::kSilent);
  if (asked_ != nullptr) Retry(silent, EndedBy::kSilent, asked_);
}

}  // namespace tidepool::service
