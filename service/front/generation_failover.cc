// Generation's part over workers that fail, are full, or are not there.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/front/generation.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kWorkerWait = absl::Seconds(30);
// For a worker that seems to have crashed: the stream of its states begins anew within a second
// where only the way to it broke.
constexpr absl::Duration kSignOfLife = absl::Seconds(2);

}  // namespace

bool IsWorkerFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

void Generation::BeginAttempts() {
  failed_workers_.clear();
  record_ = AttemptRecord();
  ticket_.Reset();
}

void Generation::OnTokensMade(int64_t count) {
  waited_ = false;
  aways_ = 0;
  record_.OnTokens(count);
  // A prompt that may crash its worker keeps others of its kind waiting until it has not.
  if (!record_.suspect()) ticket_.Reset();
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
    const bool idle = granted_ == static_cast<int64_t>(output_ids_.size());
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
  GiveAttemptUp();
  if (by != EndedBy::kAway) {
    if (EndIfHopeless(status, by, step)) return;
  } else if (++aways_, PatienceEnd() <= context_.clock->Monotonic()) {
    return End(std::move(status));
  }
  BackOff(step);
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
  asked_ = nullptr;
  ++attempt_;
  ticket_.Reset();
}

void Generation::BackOff(void (Generation::*step)()) {
  const absl::Duration wait =
      Failover::kBackOff.Wait(record_.failures() + aways_, &context_.failover->random);
  context_.loop->PostAfter(wait, [weak = weak_from_this(), step] {
    if (const auto self = weak.lock(); self && self->sink_ != nullptr) self->Resubmit(step);
  });
}

bool Generation::EndIfHopeless(const absl::Status& status, EndedBy by,
                               void (Generation::*step)()) {
  record_.OnFailure(by, context_.workers->Sight(worker_.link));
  switch (record_.Review(LookAfterWorkers())) {
    case AttemptRecord::Verdict::kTryAgain:
      return false;
    case AttemptRecord::Verdict::kPoisoned:
      Judge(status, context_.clock->Monotonic() + kSignOfLife, step);
      return true;
    case AttemptRecord::Verdict::kGiveUp:
      // A worker's own word tells more, such as of a full queue or an expert that cannot be read.
      by == EndedBy::kWorker ? End(status) : GiveUp(status);
      return true;
  }
  return false;
}

void Generation::GiveUp(const absl::Status& status) {
  End(absl::InternalError(absl::StrCat(AttemptRecord::kMaxAttempts,
                                       " attempts at this request failed; the last: ",
                                       status.message())));
}

AttemptRecord::Look Generation::LookAfterWorkers() const {
  return [workers = context_.workers](const WorkerSighting& seen) { return workers->FateOf(seen); };
}

void Generation::Judge(const absl::Status& status, absl::Duration until,
                       void (Generation::*step)()) {
  const absl::Duration now = context_.clock->Monotonic();
  const AttemptRecord::Verdict verdict = record_.Review(LookAfterWorkers());
  if (verdict == AttemptRecord::Verdict::kTryAgain) return BackOff(step);
  if (verdict == AttemptRecord::Verdict::kGiveUp) return GiveUp(status);
  if (!record_.open(LookAfterWorkers()) || now >= until) {
    context_.failover->poisoned.Refuse(prompt_digest_);
    return End(absl::InternalError(absl::StrCat(
        record_.crashes(), " workers crashed while they computed this prompt, which is ",
        "refused for ", absl::FormatDuration(PoisonedPrompts::kRefusedFor),
        "; the last: ", status.message())));
  }
  const auto again = [weak = weak_from_this(), wait = ++waits_, status, until, step] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->waits_ != wait) return;
    ++self->waits_;  // whichever of the two comes later finds it judged
    self->Judge(status, until, step);
  };
  context_.workers->WhenChanged(again);
  context_.loop->PostAfter(until - now, again);
}

void Generation::Resubmit(void (Generation::*step)()) {
  const auto kind = record_.suspect() ? Resubmissions::Kind::kSuspect : Resubmissions::Kind::kUsual;
  const auto go = [weak = weak_from_this(), step] {
    if (const auto self = weak.lock(); self && self->sink_ != nullptr) (self.get()->*step)();
  };
  ticket_ = context_.failover->resubmissions.Enter(kind, model_.digest(), go);
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
  const int64_t wait = ++waits_;
  const auto resume = [weak = weak_from_this(), wait, step] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->waits_ != wait) return;
    ++self->waits_;
    if (!self->failed_workers_.empty()) return self->Resubmit(step);
    (self.get()->*step)();
  };
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
