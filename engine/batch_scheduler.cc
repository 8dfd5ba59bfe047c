#include "engine/batch_scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

bool GoesBefore(const Sequence& a, const Sequence& b) {
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  return a.arrival < b.arrival;
}

void Insert(std::unique_ptr<Sequence> sequence, std::vector<std::unique_ptr<Sequence>>* queue) {
  const auto place = std::upper_bound(
      queue->begin(), queue->end(), sequence,
      [](const auto& added, const auto& queued) { return GoesBefore(*added, *queued); });
  queue->insert(place, std::move(sequence));
}

std::unique_ptr<Sequence> Take(const Sequence* sequence,
                               std::vector<std::unique_ptr<Sequence>>* queue) {
  const auto found = std::find_if(queue->begin(), queue->end(),
                                  [sequence](const auto& held) { return held.get() == sequence; });
  CHECK(found != queue->end()) << "sequence " << sequence->arrival << " is not in the queue";
  std::unique_ptr<Sequence> taken = std::move(*found);
  queue->erase(found);
  return taken;
}

// Pointers that stay good while the queue changes.
std::vector<Sequence*> Snapshot(const std::vector<std::unique_ptr<Sequence>>& queue) {
  std::vector<Sequence*> sequences;
  for (const auto& sequence : queue) sequences.push_back(sequence.get());
  return sequences;
}

}  // namespace

BatchScheduler::BatchScheduler(const SchedulerOptions& options, KvCache* cache,
                               const Decoder* decoder)
    : options_(options), cache_(cache), decoder_(decoder), prefill_chunk_(options.prefill_chunk) {
  // A row for everybody, so that nobody who runs can be kept from running.
  CHECK(options.max_sequences >= 1 && options.prefill_chunk >= 1 &&
        options.max_sequences <= options.limits.rows &&
        options.max_sequences <= options.limits.logit_rows);
}

void BatchScheduler::SetPrefillChunk(int64_t rows) {
  CHECK(1 <= rows && rows <= options_.prefill_chunk) << rows;
  prefill_chunk_ = rows;
}

int64_t BatchScheduler::StepRows() const {
  if (prefill_chunk_ == options_.prefill_chunk) return options_.limits.rows;
  return std::min(options_.limits.rows, std::max(prefill_chunk_, options_.max_sequences));
}

void BatchScheduler::Add(std::unique_ptr<Sequence> sequence) {
  Insert(std::move(sequence), &waiting_);
}

StepPlan BatchScheduler::Plan(absl::Time now) {
  StepPlan plan;
  EndDoomed(now, &running_, &plan);
  EndDoomed(now, &waiting_, &plan);
  // Read once: credit may arrive while this plans, and rows are shared out by who has it.
  for (const Queue* queue : {&running_, &waiting_}) {
    for (const auto& sequence : *queue) {
      sequence->has_credit = sequence->control->credit.load() > 0;
    }
  }
  int64_t prefill_rows = StepRows() - CountDecodes();
  PlanRunning(&prefill_rows, &plan);
  PlanWaiting(&prefill_rows, &plan);
  return plan;
}

// Takes out what must not, or cannot, go on.
void BatchScheduler::EndDoomed(absl::Time now, Queue* queue, StepPlan* plan) {
  for (Sequence* sequence : Snapshot(*queue)) {
    const int64_t tokens = sequence->tokens.size();
    absl::Status status;
    if (sequence->control->cancelled.load()) {
      status = absl::CancelledError("cancelled by the caller");
    } else if (sequence->request.deadline <= now) {
      status = absl::DeadlineExceededError(
          absl::StrCat("the deadline passed after ", sequence->outputs(), " output tokens"));
    } else if (cache_->BlocksFor(tokens, options_.prefill_chunk) > cache_->blocks_total()) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("the sequence has grown to ", tokens,
                       " tokens, more than the KV memory can hold; raise --kv-memory"));
    }
    if (status.ok()) continue;
    std::unique_ptr<Sequence> ended = Take(sequence, queue);
    ended->lease.Reset();
    ended->admitted = false;
    plan->ended.push_back({std::move(ended), std::move(status)});
  }
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
      Sequence* victim = Victim(sequence);
      // The last in order gives way to those before it. Alone it has every block, and EndDoomed
      // saw to it that these are enough.
      CHECK(victim != sequence || running_.size() > 1) << "no KV blocks for the only sequence";
      Preempt(victim);
      if (victim == sequence) break;
    }
    if (!decodes && sequence->admitted) *prefill_rows -= plan->batch.spans.back().rows();
  }
}

// Admission, in order: no one overtakes a sequence for which there is no room, or large prompts
// would wait for ever behind small ones.
void BatchScheduler::PlanWaiting(int64_t* prefill_rows, StepPlan* plan) {
  for (Sequence* sequence : Snapshot(waiting_)) {
    if (*prefill_rows == 0) return;
    if (!sequence->has_credit) continue;
    while (!TryAdmit(sequence)) {
      Sequence* stalled = StalledSequence();
      if (stalled == nullptr) return;
      Preempt(stalled);
    }
    const int64_t rows = std::min(prefill_chunk_, *prefill_rows);
    CHECK(PlanSequence(sequence, rows, plan)) << "admitted without KV blocks";
    *prefill_rows -= plan->batch.spans.back().rows();
  }
}

// Admits when the whole of the sequence fits beside what those that run still need for their
// prompts, and one more block for each of them: without that the next step would preempt again.
bool BatchScheduler::TryAdmit(Sequence* sequence) {
  if (static_cast<int64_t>(running_.size()) >= options_.max_sequences) return false;
  int64_t spoken_for = 0;
  for (const auto& other : running_) {
    const int64_t need = cache_->BlocksFor(other->tokens.size(), options_.prefill_chunk);
    spoken_for += std::max<int64_t>(0, need - other->lease.blocks_held()) + cache_->groups();
  }
  KvLease lease = cache_->NewLease(sequence->request.cache_salt);
  lease.AttachPrefix(sequence->tokens);
  const int64_t need =
      cache_->BlocksFor(sequence->tokens.size(), options_.prefill_chunk) - lease.blocks_held();
  if (need > cache_->blocks_free() - spoken_for) return false;
  sequence->lease = std::move(lease);
  sequence->admitted = true;
  if (!sequence->cached_at_admission.has_value()) {
    sequence->cached_at_admission = sequence->lease.slots();
  }
  Insert(Take(sequence, &waiting_), &running_);
  return true;
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
  ++preemptions_;
  Insert(std::move(taken), &waiting_);
}

void BatchScheduler::Commit(PlanItem* item, const Span& span) {
  Sequence* sequence = item->sequence;
  item->reservation.Keep();
  const int64_t slots = span.first_slot + span.rows();
  sequence->lease.Commit(absl::MakeConstSpan(sequence->tokens).first(slots));
}

std::unique_ptr<Sequence> BatchScheduler::Remove(Sequence* sequence) {
  std::unique_ptr<Sequence> removed = Take(sequence, &running_);
  removed->lease.Reset();
  removed->admitted = false;
  return removed;
}

std::vector<std::unique_ptr<Sequence>> BatchScheduler::RemoveAll() {
  std::vector<std::unique_ptr<Sequence>> removed;
  for (Sequence* sequence : Snapshot(running_)) removed.push_back(Remove(sequence));
  for (auto& sequence : waiting_) removed.push_back(std::move(sequence));
  waiting_.clear();
  return removed;
}

int64_t BatchScheduler::QueuedPromptTokens() const {
  int64_t rows = 0;
  for (const auto& sequence : waiting_) rows += static_cast<int64_t>(sequence->tokens.size());
  for (const auto& sequence : running_) {
    const int64_t pending = decoder_->PendingRows(*sequence);
    if (pending > 1) rows += pending;
  }
  return rows;
}

absl::Time BatchScheduler::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Queue* queue : {&running_, &waiting_}) {
    for (const auto& sequence : *queue) next = std::min(next, sequence->request.deadline);
  }
  return next;
}

}  // namespace tidepool::engine
