#include "engine/scheduler/batch_scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/scheduler/prompt_branches.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Copies the pointers. They stay valid while the queue changes.
std::vector<Sequence*> Snapshot(const SequenceQueue& queue) {
  std::vector<Sequence*> sequences;
  for (const auto& sequence : queue) sequences.push_back(sequence.get());
  return sequences;
}

// Returns the salt of a sequence's KV. Sequences that rotate differently get different salts, so
// they share no KV.
std::string SaltOf(const Sequence& sequence, int64_t short_slots) {
  if (sequence.slot_limit() > short_slots) return sequence.request.cache_salt;
  return absl::StrCat(sequence.request.cache_salt, absl::string_view("\0short", 6));
}

}  // namespace

BatchScheduler::BatchScheduler(const SchedulerOptions& options, KvCache* cache,
                               const Decoder* decoder, KvRestores* restores)
    : options_(options),
      cache_(cache),
      decoder_(decoder),
      restores_(restores),
      running_(options, decoder),
      admission_({.options = options,
                  .cache = cache,
                  .decoder = decoder,
                  .restores = restores,
                  .running = &running_,
                  .waiting = &waiting_}) {}

void BatchScheduler::Add(std::unique_ptr<Sequence> sequence) {
  sequence->lease =
      cache_->NewLease(SaltOf(*sequence, options_.short_slots), sequence->request.prompt_length);
  sequence->admission.restore_tried = false;
  waiting_.Add(std::move(sequence));
}

StepPlan BatchScheduler::Plan(absl::Duration now) {
  StepPlan plan;
  if (restores_ != nullptr) restores_->Poll(now);
  EndDoomed(now, &plan);
  ReadCredit();
  End(deadlines_.TakeRefused(now, &waiting_), &plan);
  running_.BeginStep();
  admission_.Run({.now = now, .prompt_rows_per_second = deadlines_.rates().prompt_rows_per_second});
  PlanRunning(&plan);
  PlanCheckpoints(&plan);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    plan.items[i].sequence->lease.SetBlocks(&plan.batch.spans[i]);
  }
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

// Ends the sequences that may not continue or cannot continue.
void BatchScheduler::EndDoomed(absl::Duration now, StepPlan* plan) {
  const auto judge = [&](Sequence* sequence) { return Doom(*sequence, now); };
  End(running_.TakeFailed(judge), plan);
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
        absl::StrCat("the sequence has ", tokens,
                     " tokens, more than the KV memory can hold; raise --kv-memory"));
  }
  return absl::OkStatus();
}

// Rows are distributed according to credit, and credit may arrive during planning. So the credit is
// read only once per plan. A sequence that waits for its mask is treated like one without credit.
void BatchScheduler::ReadCredit() {
  for (const SequenceQueue* queue : {&running_.sequences(), &waiting_.sequences()}) {
    for (const auto& sequence : *queue) {
      const bool waits = sequence->constraint != nullptr && sequence->constraint->computing();
      sequence->has_credit = !waits && sequence->control->credit.load() > 0;
    }
  }
}

void BatchScheduler::PlanRunning(StepPlan* plan) {
  spare_logit_rows_ = options_.limits.logit_rows - options_.max_sequences;
  const absl::flat_hash_map<uint64_t, int64_t> prompt_rows = running_.SharePromptRows();
  for (Sequence* sequence : Snapshot(running_.sequences())) {
    if (!sequence->admitted || !sequence->has_credit) continue;
    const auto prompt = prompt_rows.find(sequence->arrival);
    const int64_t rows =
        prompt == prompt_rows.end() ? running_.DecodeRows(*sequence) : prompt->second;
    if (rows > 0) PlanOrPreempt(sequence, rows, plan);
  }
}

// Preempts other sequences until there are blocks for `sequence`. If `sequence` is the last in
// order, preempts `sequence` itself.
void BatchScheduler::PlanOrPreempt(Sequence* sequence, int64_t max_rows, StepPlan* plan) {
  while (!PlanSequence(sequence, max_rows, plan)) {
    if (admission_.GiveBackRestore(sequence->request.priority)) continue;
    Sequence* victim = Victim(sequence);
    // A single sequence can use every block, if there are no restores. EndDoomed has checked that
    // all blocks together are enough.
    CHECK(victim != sequence || running_.size() > 1 ||
          (restores_ != nullptr && restores_->running() > 0))
        << "no KV blocks for the only sequence";
    admission_.Preempt(victim);
    if (victim == sequence) return;
  }
}

// Plans the next rows of a sequence. If there are not enough blocks, returns false and changes
// nothing.
bool BatchScheduler::PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan) {
  const int64_t fitting = decoder_->RowsWithin(*sequence, 1 + spare_logit_rows_);
  RowSpan span = decoder_->NextSpan(*sequence, std::min(max_rows, fitting));
  const int64_t slots = span.first_slot + span.rows();
  std::optional<KvReservation> reservation = sequence->lease.Reserve(slots);
  if (!reservation.has_value()) return false;
  // The first row of logits of each sequence does not count.
  spare_logit_rows_ -= std::max<int64_t>(0, static_cast<int64_t>(span.logit_rows.size()) - 1);
  plan->batch.spans.push_back(std::move(span));
  plan->items.push_back({sequence, *std::move(reservation)});
  return true;
}

// Must run after all sequences are planned, because checkpoints only get blocks that are left.
void BatchScheduler::PlanCheckpoints(StepPlan* plan) {
  if (cache_->state_parts() == 0) return;
  for (size_t i = 0; i < plan->items.size(); ++i) {
    const RowSpan& span = plan->batch.spans[i];
    Sequence* sequence = plan->items[i].sequence;
    const int64_t slots = span.first_slot + span.rows();
    if (span.rows() > 1) {
      for (const int64_t boundary : BranchesWithin(sequence, span.first_slot, slots, waiting_)) {
        sequence->lease.WantCheckpoint(boundary);
      }
    }
    sequence->lease.ReserveSnapshots(sequence->tokens, slots);
  }
  // Sequences that are submitted during the pass may branch off within it.
  for (size_t i = 0; i < plan->items.size(); ++i) {
    const RowSpan& span = plan->batch.spans[i];
    Sequence* sequence = plan->items[i].sequence;
    sequence->lease.ReserveSpareSnapshots(sequence->tokens, span.first_slot + span.rows());
  }
}

// Returns the sequence that loses its KV to `for_whom`. Returns `for_whom` itself if all others are
// before it in order. Never returns a sequence that is already in the plan, because planned
// sequences have credit and are before `for_whom`.
Sequence* BatchScheduler::Victim(const Sequence* for_whom) const {
  Sequence* stalled = running_.LastStalled();
  return stalled != nullptr && stalled != for_whom ? stalled : running_.last();
}

void BatchScheduler::Commit(PlanItem* item, const RowSpan& span) {
  Sequence* sequence = item->sequence;
  item->reservation.Keep();
  const int64_t slots = span.first_slot + span.rows();
  sequence->lease.Commit(absl::MakeConstSpan(sequence->tokens).first(slots));
  const bool ends = slots == static_cast<int64_t>(sequence->tokens.size());
  if (ends) waiting_.ChargeOutput(*sequence, span.phase == moe::Phase::kDecode ? span.rows() : 1);
}

std::unique_ptr<Sequence> BatchScheduler::Remove(Sequence* sequence) {
  std::unique_ptr<Sequence> removed = running_.TakeDone(sequence);
  removed->lease = KvLease();
  removed->admitted = false;
  return removed;
}

std::vector<std::unique_ptr<Sequence>> BatchScheduler::RemoveAll() {
  if (restores_ != nullptr) restores_->EndAll();
  std::vector<std::unique_ptr<Sequence>> removed;
  for (Sequence* sequence : Snapshot(running_.sequences())) removed.push_back(Remove(sequence));
  for (Sequence* sequence : Snapshot(waiting_.sequences())) {
    removed.push_back(waiting_.Take(sequence));
    removed.back()->lease = KvLease();
  }
  return removed;
}

int64_t BatchScheduler::QueuedPromptTokens() const {
  int64_t rows = running_.PendingPromptRows();
  for (const auto& sequence : waiting_.sequences()) {
    rows += static_cast<int64_t>(sequence->tokens.size());
  }
  return rows;
}

bool BatchScheduler::HasReady() const {
  const auto ready = [](const auto& sequence) { return sequence->has_credit; };
  const SequenceQueue& running = running_.sequences();
  const SequenceQueue& waiting = waiting_.sequences();
  return std::any_of(running.begin(), running.end(), ready) ||
         std::any_of(waiting.begin(), waiting.end(), ready);
}

absl::Duration BatchScheduler::NextDeadline() const {
  absl::Duration next = restores_ == nullptr ? absl::InfiniteDuration() : restores_->NextDeadline();
  for (const SequenceQueue* queue : {&running_.sequences(), &waiting_.sequences()}) {
    for (const auto& sequence : *queue) next = std::min(next, sequence->request.deadline);
  }
  return next;
}

}  // namespace tidepool::engine
