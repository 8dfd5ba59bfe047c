#include "engine/batch_scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
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
        options.max_concurrent_prefills >= 1 && options.max_sequences <= options.limits.rows &&
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
  spare_logit_rows_ = options_.limits.logit_rows - options_.max_sequences;
  if (restores_ != nullptr) restores_->Poll(now);
  EndDoomed(now, &plan);
  ReadCredit();
  EndHopeless(now, &plan);
  BeginRows();
  PreemptForWaiting();
  AdmitWaiting();
  PlanRunning(&plan);
  return plan;
}

void BatchScheduler::BeginRows() {
  rows_.Begin({.prompt = prefill_chunk_,
               .beside_ending = mixed_rows_,
               .unfinished = options_.max_concurrent_prefills});
  for (const auto& sequence : running_) {
    if (ComputesPrompt(*sequence)) rows_.Add(PromptOf(*sequence, decoder_->PendingRows(*sequence)));
  }
  rows_.SetStepRows(PromptRowsOfStep());
}

// What decodes leave, or can bear.
int64_t BatchScheduler::PromptRowsOfStep() const {
  const int64_t decodes = CountDecodes();
  const int64_t rows = StepRows() - decodes;
  return decodes > 0 ? std::min(rows, mixed_rows_) : rows;
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
      PromptTime(*sequence, sequence->lease.FindPrefix(sequence->reusable()).tokens);
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

int64_t BatchScheduler::CountDecodes() const {
  return std::count_if(running_.begin(), running_.end(), [this](const auto& sequence) {
    return sequence->has_credit && decoder_->PendingRows(*sequence) == 1 &&
           !rows_.Has(sequence->arrival);
  });
}

void BatchScheduler::PlanRunning(StepPlan* plan) {
  const absl::flat_hash_map<uint64_t, int64_t> prompt_rows = rows_.Share();
  for (Sequence* sequence : Snapshot(running_)) {
    if (!sequence->admitted || !sequence->has_credit) continue;
    const auto prompt = prompt_rows.find(sequence->arrival);
    const int64_t rows = prompt == prompt_rows.end() ? 1 : prompt->second;
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
  }
}

bool BatchScheduler::GiveBackRestore(int64_t most_priority) {
  return restores_ != nullptr && restores_->GiveBack(most_priority);
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

// False, and nothing changed, when there are too few blocks.
bool BatchScheduler::PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan) {
  const int64_t fitting = decoder_->RowsWithin(*sequence, 1 + spare_logit_rows_);
  Span span = decoder_->NextSpan(*sequence, std::min(max_rows, fitting));
  const int64_t slots = span.first_slot + span.rows();
  std::optional<KvReservation> reservation = sequence->lease.Reserve(slots);
  if (!reservation.has_value()) return false;
  span.blocks = sequence->lease.Tables(slots);
  // One row of logits of each sequence is not spare.
  spare_logit_rows_ -= std::max<int64_t>(0, static_cast<int64_t>(span.logit_rows.size()) - 1);
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
  taken->owed_place = false;
  // That its client does not read is its principal's doing.
  if (!taken->has_credit) taken->charged = false;
  ++preemptions_;
  rows_.Remove(taken->arrival);
  waiting_.Add(std::move(taken));
  rows_.SetStepRows(PromptRowsOfStep());
}

void BatchScheduler::Commit(PlanItem* item, const Span& span) {
  Sequence* sequence = item->sequence;
  item->reservation.Keep();
  const int64_t slots = span.first_slot + span.rows();
  sequence->lease.Commit(absl::MakeConstSpan(sequence->tokens).first(slots));
  const bool ends = slots == static_cast<int64_t>(sequence->tokens.size());
  if (ends) waiting_.ChargeOutput(*sequence, 1);
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
