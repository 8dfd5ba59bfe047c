#include "engine/batch_scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/admission_turns.h"
#include "kernels/base/check.h"
#include "kernels/base/retry_after.h"

namespace tidepool::engine {
namespace {

// A deadline is judged by a time that is certainly needed: so much less than the measured one,
// which was measured on other work.
constexpr double kCertainShare = 0.5;

std::string InMilliseconds(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(1)));
}

// Pointers that stay good while the queue changes.
std::vector<Sequence*> Snapshot(const SequenceQueue& queue) {
  std::vector<Sequence*> sequences;
  for (const auto& sequence : queue) sequences.push_back(sequence.get());
  return sequences;
}

}  // namespace

BatchScheduler::BatchScheduler(const SchedulerOptions& options, KvCache* cache,
                               const Decoder* decoder, KvRestores* restores)
    : options_(options),
      cache_(cache),
      decoder_(decoder),
      restores_(restores),
      prefill_chunk_(options.prefill_chunk),
      mixed_rows_(options.limits.rows) {
  // A row for everybody, so that nobody who runs can be kept from running.
  CHECK(options.max_sequences >= 1 && options.prefill_chunk >= 1 &&
        options.max_sequences <= options.limits.rows &&
        options.max_sequences <= options.limits.logit_rows);
}

void BatchScheduler::SetPrefillChunk(int64_t rows) {
  CHECK(1 <= rows && rows <= options_.prefill_chunk) << rows;
  prefill_chunk_ = rows;
}

void BatchScheduler::SetMixedRows(int64_t rows) {
  CHECK_GE(rows, 1);
  mixed_rows_ = rows;
}

int64_t BatchScheduler::StepRows() const {
  if (prefill_chunk_ == options_.prefill_chunk) return options_.limits.rows;
  return std::min(options_.limits.rows, std::max(prefill_chunk_, options_.max_sequences));
}

void BatchScheduler::Add(std::unique_ptr<Sequence> sequence) {
  sequence->lease = cache_->NewLease(sequence->request.cache_salt);
  sequence->restore_tried = false;
  waiting_.Add(std::move(sequence));
}

StepPlan BatchScheduler::Plan(absl::Duration now) {
  StepPlan plan;
  now_ = now;
  if (restores_ != nullptr) restores_->Poll(now);
  EndDoomed(now, &plan);
  ReadCredit();
  EndHopeless(now, &plan);
  PreemptForWaiting();
  const int64_t decodes = CountDecodes();
  int64_t prefill_rows = StepRows() - decodes;
  if (decodes > 0) prefill_rows = std::min(prefill_rows, mixed_rows_);
  PlanRunning(&prefill_rows, &plan);
  PlanWaiting(&prefill_rows, &plan);
  return plan;
}

void BatchScheduler::End(std::vector<EndedSequence> failed, StepPlan* plan) {
  for (EndedSequence& ended : failed) {
    if (restores_ != nullptr) restores_->Forget(ended.sequence.get());
    ended.sequence->lease = KvLease();
    ended.sequence->admitted = false;
    plan->ended.push_back(std::move(ended));
  }
}

// Takes out what must not, or cannot, go on.
void BatchScheduler::EndDoomed(absl::Duration now, StepPlan* plan) {
  const auto judge = [&](Sequence* sequence) { return Doom(*sequence, now); };
  End(TakeFailed(judge, &running_), plan);
  End(waiting_.TakeFailed(judge), plan);
}

absl::Status BatchScheduler::Doom(const Sequence& sequence, absl::Duration now) const {
  const int64_t tokens = sequence.tokens.size();
  if (sequence.control->cancelled.load()) return absl::CancelledError("cancelled by the caller");
  if (sequence.request.deadline <= now) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed after ", sequence.outputs(), " output tokens"));
  }
  if (cache_->BlocksFor(tokens, options_.prefill_chunk) > cache_->blocks_total()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sequence has grown to ", tokens,
                     " tokens, more than the KV memory can hold; raise --kv-memory"));
  }
  return absl::OkStatus();
}

// Credit may arrive while this plans, and rows are shared out by who has it: it is read once.
void BatchScheduler::ReadCredit() {
  for (const SequenceQueue* queue : {&std::as_const(running_), &waiting_.sequences()}) {
    for (const auto& sequence : *queue) {
      sequence->has_credit = sequence->control->credit.load() > 0;
    }
  }
}

// Judges each sequence once, when it comes, and not one that another engine began: what was
// accepted has its chance.
void BatchScheduler::EndHopeless(absl::Duration now, StepPlan* plan) {
  const SequenceQueue& waiting = waiting_.sequences();
  if (std::all_of(waiting.begin(), waiting.end(), [](const auto& known) { return known->seen; })) {
    return;
  }
  CertainlyAhead ahead;
  const auto judge = [&](Sequence* sequence) {
    ++looks_;
    absl::Status status;
    if (!std::exchange(sequence->seen, true) && sequence->outputs() == 0 &&
        sequence->request.deadline != absl::InfiniteDuration()) {
      status = JudgeDeadline(sequence, sequence->request.deadline - now, ahead.Of(*sequence));
    }
    if (status.ok()) ahead.Show(*sequence);
    return status;
  };
  std::vector<EndedSequence> hopeless = waiting_.TakeFailed(judge);
  deadline_refusals_ += static_cast<int64_t>(hopeless.size());
  End(std::move(hopeless), plan);
}

// What the prompt, but for its first `cached` tokens, takes at least.
absl::Duration BatchScheduler::PromptTime(const Sequence& sequence, int64_t cached) const {
  if (rates_.prompt_rows_per_second <= 0) return absl::ZeroDuration();
  const auto rows = static_cast<double>(static_cast<int64_t>(sequence.tokens.size()) - cached);
  return absl::Seconds(kCertainShare * rows / rates_.prompt_rows_per_second);
}

// By the least time until its first token, where so many are certainly planned before it. An idle
// engine would not make it either: that is DEADLINE_EXCEEDED; it would, and the queue is what
// stands between: RESOURCE_EXHAUSTED.
absl::Status BatchScheduler::JudgeDeadline(Sequence* sequence, absl::Duration left,
                                           int64_t ahead) const {
  absl::Duration queue;
  if (ahead > 0 && rates_.admissions_per_second > 0) {
    queue =
        absl::Seconds(kCertainShare * static_cast<double>(ahead) / rates_.admissions_per_second);
  }
  // The cache is asked, for which the prompt is hashed, only where it matters.
  if (queue + PromptTime(*sequence, /*cached=*/0) <= left) return absl::OkStatus();
  const absl::Duration own =
      PromptTime(*sequence, sequence->lease.FindPrefix(sequence->tokens).tokens);
  if (own > left) {
    return absl::DeadlineExceededError(
        absl::StrCat("refused at once: the deadline is in ", InMilliseconds(left),
                     ", and a prompt of ", sequence->tokens.size(), " tokens takes at least ",
                     InMilliseconds(own), "; allow more time"));
  }
  if (queue + own <= left) return absl::OkStatus();
  const absl::Duration hint = std::min(queue, base::kLongestRetryAfter);
  return base::WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                  "refused at once: the deadline is in ", InMilliseconds(left),
                                  ", and the ", ahead, " requests ahead of this one take at least ",
                                  InMilliseconds(hint), "; retry later, or allow more time")),
                              hint);
}

// Gives those that wait the places and blocks of those that run with a lower priority, where that
// is enough for them. Before anything is planned: nobody loses rows that a plan counts on.
void BatchScheduler::PreemptForWaiting() {
  const auto lower_runs = [this](const Sequence& sequence) {
    return !running_.empty() && running_.back()->request.priority < sequence.request.priority;
  };
  if (waiting_.size() == 0 || !lower_runs(*waiting_.sequences().front())) return;
  AdmissionTurns turns(&waiting_);
  Kept kept;
  for (Sequence* next = turns.Next(); next != nullptr && lower_runs(*next); next = turns.Next()) {
    if (FindPrefixesUnderWay().Hold(next)) break;
    if (AdmitInPlaceOfLower(next, &kept) == Admission::kNoRoom) break;
    turns.Pass();
  }
  looks_ += turns.looks();
}

BatchScheduler::Admission BatchScheduler::AdmitInPlaceOfLower(Sequence* sequence, Kept* kept) {
  Admission admission = TryAdmit(sequence, kept);
  if (admission != Admission::kNoRoom || !FitsInPlaceOfLower(*sequence, *kept)) return admission;
  while (admission == Admission::kNoRoom && !running_.empty() &&
         running_.back()->request.priority < sequence->request.priority) {
    Preempt(running_.back().get());
    admission = TryAdmit(sequence, kept);
  }
  return admission;
}

bool BatchScheduler::FitsInPlaceOfLower(const Sequence& sequence, const Kept& kept) const {
  int64_t places = options_.max_sequences - kept.places;
  int64_t blocks = cache_->blocks_free() - kept.blocks;
  if (restores_ != nullptr) blocks += restores_->BlocksBelow(sequence.request.priority);
  for (const auto& other : running_) {
    if (other->request.priority < sequence.request.priority) {
      blocks += other->lease.blocks_held();
    } else {
      --places;
      blocks -= BlocksSpokenFor(*other);
    }
  }
  return places > 0 && cache_->BlocksFor(sequence.tokens.size(), options_.prefill_chunk) <= blocks;
}

int64_t BatchScheduler::CountDecodes() const {
  return std::count_if(running_.begin(), running_.end(), [this](const auto& sequence) {
    return sequence->has_credit && decoder_->PendingRows(*sequence) == 1;
  });
}

void BatchScheduler::PlanRunning(int64_t* prefill_rows, StepPlan* plan) {
  for (Sequence* sequence : Snapshot(running_)) {
    if (!sequence->admitted || !sequence->has_credit) continue;
    const bool decodes = decoder_->PendingRows(*sequence) == 1;
    const int64_t rows = decodes ? 1 : std::min(prefill_chunk_, *prefill_rows);
    if (rows == 0) continue;
    while (!PlanSequence(sequence, rows, plan)) {
      if (GiveBackRestore(sequence->request.priority)) continue;
      Sequence* victim = Victim(sequence);
      // The last in order gives way to those before it. Alone, also in being restored, it has every
      // block, and EndDoomed saw to it that these are enough.
      CHECK(victim != sequence || running_.size() > 1 ||
            (restores_ != nullptr && restores_->running() > 0))
          << "no KV blocks for the only sequence";
      Preempt(victim);
      if (victim == sequence) break;
    }
    if (!decodes && sequence->admitted) *prefill_rows -= plan->batch.spans.back().rows();
  }
}

// Admission, in order: no one overtakes a sequence for which there is no room, or large prompts
// would wait for ever behind small ones.
void BatchScheduler::PlanWaiting(int64_t* prefill_rows, StepPlan* plan) {
  if (*prefill_rows <= 0 || waiting_.size() == 0) return;
  PrefixesUnderWay under_way = FindPrefixesUnderWay();
  AdmissionTurns turns(&waiting_);
  Kept kept;
  while (*prefill_rows > 0) {
    Sequence* sequence = turns.Next();
    if (sequence == nullptr) break;
    if (!under_way.Hold(sequence)) {
      const Admission admission = AdmitInPlaceOfStalled(sequence, &kept);
      if (admission == Admission::kNoRoom) break;
      if (admission == Admission::kAdmitted) {
        if (ComputesPrompt(*sequence)) under_way.Add(sequence);
        const int64_t rows = std::min(prefill_chunk_, *prefill_rows);
        CHECK(PlanSequence(sequence, rows, plan)) << "admitted without KV blocks";
        *prefill_rows -= plan->batch.spans.back().rows();
      }
    }
    turns.Pass();
  }
  looks_ += turns.looks();
}

// Whether it waits for its KV from a disk.
bool BatchScheduler::KeepForRestored(Sequence* sequence, Kept* kept) {
  if (restores_ == nullptr) return false;
  const std::optional<int64_t> covered = restores_->CoveredBlocks(sequence);
  if (!covered.has_value()) return false;
  const int64_t need = cache_->BlocksFor(sequence->tokens.size(), options_.prefill_chunk);
  ++kept->places;
  kept->blocks += std::max<int64_t>(0, need - *covered);
  return true;
}

// Of one for which there is room, and which has attached what memory has.
bool BatchScheduler::BeginRestore(Sequence* sequence) {
  if (restores_ == nullptr || sequence->restore_tried) return false;
  sequence->lease.Reset();
  const KvRestores::Terms terms = {.now = now_,
                                   .prompt_rows_per_second = rates_.prompt_rows_per_second};
  if (restores_->Begin(sequence, terms)) return true;
  sequence->lease.AttachPrefix(sequence->tokens);
  return false;
}

bool BatchScheduler::GiveBackRestore(int64_t most_priority) {
  return restores_ != nullptr && restores_->GiveBack(most_priority);
}

BatchScheduler::Admission BatchScheduler::AdmitInPlaceOfStalled(Sequence* sequence, Kept* kept) {
  Admission admission = TryAdmit(sequence, kept);
  while (admission == Admission::kNoRoom) {
    Sequence* stalled = StalledSequence();
    if (stalled == nullptr) break;
    Preempt(stalled);
    admission = TryAdmit(sequence, kept);
  }
  return admission;
}

// Of one that runs: whether it is about to compute more than its last token.
bool BatchScheduler::ComputesPrompt(const Sequence& sequence) const {
  return sequence.has_credit && decoder_->PendingRows(sequence) > 1;
}

PrefixesUnderWay BatchScheduler::FindPrefixesUnderWay() const {
  PrefixesUnderWay prefixes;
  for (const auto& sequence : running_) {
    if (ComputesPrompt(*sequence)) prefixes.Add(sequence.get());
  }
  return prefixes;
}

// What a running sequence still needs for its prompt, and one more block: without that the next
// step would preempt.
int64_t BatchScheduler::BlocksSpokenFor(const Sequence& sequence) const {
  const int64_t need = cache_->BlocksFor(sequence.tokens.size(), options_.prefill_chunk);
  return std::max<int64_t>(0, need - sequence.lease.blocks_held()) + cache_->groups();
}

// Admits, or has its KV restored, when the whole of the sequence fits beside what is spoken for and
// kept.
BatchScheduler::Admission BatchScheduler::TryAdmit(Sequence* sequence, Kept* kept) {
  if (KeepForRestored(sequence, kept)) return Admission::kRestoring;
  if (running() + kept->places >= options_.max_sequences) return Admission::kNoRoom;
  int64_t spoken_for = kept->blocks;
  for (const auto& other : running_) spoken_for += BlocksSpokenFor(*other);
  KvLease& lease = sequence->lease;
  lease.AttachPrefix(sequence->tokens);
  const int64_t need =
      cache_->BlocksFor(sequence->tokens.size(), options_.prefill_chunk) - lease.blocks_held();
  while (need > cache_->blocks_free() - spoken_for) {
    if (GiveBackRestore(int64_t{sequence->request.priority} - 1)) continue;
    lease.Reset();
    return Admission::kNoRoom;
  }
  if (BeginRestore(sequence)) {
    KeepForRestored(sequence, kept);
    return Admission::kRestoring;
  }
  Admit(sequence);
  return Admission::kAdmitted;
}

// With what it has attached.
void BatchScheduler::Admit(Sequence* sequence) {
  const KvLease& lease = sequence->lease;
  lease.NoteUse();
  sequence->admitted = true;
  if (!sequence->cached_at_admission.has_value()) {
    sequence->cached_at_admission = lease.slots();
  }
  // What is computed anew because others took its KV is not its principal's doing.
  if (!std::exchange(sequence->charged, true)) {
    waiting_.ChargePrompt(*sequence, sequence->tokens.size() - lease.slots());
  }
  ++admissions_;
  Insert(waiting_.Take(sequence), &running_);
}

// False, and nothing changed, when there are too few blocks.
bool BatchScheduler::PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan) {
  Span span = decoder_->NextSpan(*sequence, max_rows);
  const int64_t slots = span.first_slot + span.rows();
  std::optional<KvReservation> reservation = sequence->lease.Reserve(slots);
  if (!reservation.has_value()) return false;
  span.blocks = sequence->lease.Tables(slots);
  plan->batch.spans.push_back(std::move(span));
  plan->items.push_back({sequence, *std::move(reservation)});
  return true;
}

// Who loses its KV so that `for_whom` can go on; itself, when all others go before it. Never one
// that the current plan holds: these have credit and stand before `for_whom`.
Sequence* BatchScheduler::Victim(const Sequence* for_whom) const {
  Sequence* stalled = StalledSequence();
  return stalled != nullptr && stalled != for_whom ? stalled : running_.back().get();
}

Sequence* BatchScheduler::StalledSequence() const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (!(*it)->has_credit) return it->get();
  }
  return nullptr;
}

void BatchScheduler::Preempt(Sequence* sequence) {
  std::unique_ptr<Sequence> taken = Take(sequence, &running_);
  taken->lease.Reset();
  taken->admitted = false;
  taken->restore_tried = false;
  // That its client does not read is its principal's doing.
  if (!taken->has_credit) taken->charged = false;
  ++preemptions_;
  waiting_.Add(std::move(taken));
}

void BatchScheduler::Commit(PlanItem* item, const Span& span) {
  Sequence* sequence = item->sequence;
  item->reservation.Keep();
  const int64_t slots = span.first_slot + span.rows();
  sequence->lease.Commit(absl::MakeConstSpan(sequence->tokens).first(slots));
  if (!span.logit_rows.empty()) waiting_.ChargeOutput(*sequence, span.logit_rows.size());
}

std::unique_ptr<Sequence> BatchScheduler::Remove(Sequence* sequence) {
  std::unique_ptr<Sequence> removed = Take(sequence, &running_);
  removed->lease = KvLease();
  removed->admitted = false;
  return removed;
}

std::vector<std::unique_ptr<Sequence>> BatchScheduler::RemoveAll() {
  if (restores_ != nullptr) restores_->EndAll();
  std::vector<std::unique_ptr<Sequence>> removed;
  for (Sequence* sequence : Snapshot(running_)) removed.push_back(Remove(sequence));
  for (Sequence* sequence : Snapshot(waiting_.sequences())) {
    removed.push_back(waiting_.Take(sequence));
    removed.back()->lease = KvLease();
  }
  return removed;
}

int64_t BatchScheduler::QueuedPromptTokens() const {
  int64_t rows = 0;
  for (const auto& sequence : waiting_.sequences())
    rows += static_cast<int64_t>(sequence->tokens.size());
  for (const auto& sequence : running_) {
    const int64_t pending = decoder_->PendingRows(*sequence);
    if (pending > 1) rows += pending;
  }
  return rows;
}

bool BatchScheduler::HasReady() const {
  const auto ready = [](const auto& sequence) { return sequence->has_credit; };
  return std::any_of(running_.begin(), running_.end(), ready) ||
         std::any_of(waiting_.sequences().begin(), waiting_.sequences().end(), ready);
}

absl::Duration BatchScheduler::NextDeadline() const {
  absl::Duration next = restores_ == nullptr ? absl::InfiniteDuration() : restores_->NextDeadline();
  for (const SequenceQueue* queue : {&running_, &waiting_.sequences()}) {
    for (const auto& sequence : *queue) next = std::min(next, sequence->request.deadline);
  }
  return next;
}

}  // namespace tidepool::engine
