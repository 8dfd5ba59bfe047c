// BatchScheduler: who is admitted, and who is preempted for it.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "engine/admission_turns.h"
#include "engine/batch_scheduler.h"
#include "engine/fair_preemption.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Waiting sequences that a plan looks at although they may not begin.
constexpr int kMaxPassedOver = 64;

}  // namespace

// Gives those that wait the places and blocks of those that run with a lower priority, where that
// is enough for them. Before anything is planned: nobody loses rows that a plan counts on.
void BatchScheduler::PreemptForWaiting() {
  const auto lower_runs = [this](const Sequence& sequence) {
    return !running_.empty() && running_.back()->request.priority < sequence.request.priority;
  };
  if (waiting_.size() == 0 || !lower_runs(*waiting_.sequences().front())) return;
  AdmissionTurns turns(&waiting_);
  Kept kept;
  int passed_over = 0;
  for (Sequence* next = turns.Next(); next != nullptr && lower_runs(*next); next = turns.Next()) {
    if (FindPrefixesUnderWay().Hold(next)) break;
    const Admission admission = AdmitInPlaceOfLower(next, &kept);
    if (admission == Admission::kNoRoom) break;
    if (admission == Admission::kNoRows || admission == Admission::kNoSlot) {
      if (++passed_over == kMaxPassedOver) break;
      turns.PassOver();
    } else {
      turns.Pass();
    }
  }
  looks_ += turns.looks();
}

BatchScheduler::Admission BatchScheduler::AdmitInPlaceOfLower(Sequence* sequence, Kept* kept) {
  Admission admission = TryAdmit(sequence, kept);
  while (admission == Admission::kNoSlot) {
    Sequence* prefill = LowerPrefill(*sequence);
    if (prefill == nullptr) return admission;
    Preempt(prefill);
    admission = TryAdmit(sequence, kept);
  }
  if (admission != Admission::kNoRoom || !FitsInPlaceOfLower(*sequence, *kept) ||
      JudgeRows(sequence) != Admission::kAdmitted) {
    return admission;
  }
  while (admission == Admission::kNoRoom && !running_.empty() &&
         running_.back()->request.priority < sequence->request.priority) {
    Preempt(running_.back().get());
    admission = TryAdmit(sequence, kept);
  }
  return admission;
}

// The last in order of those with a lower priority whose prompts are computed in part, or null.
Sequence* BatchScheduler::LowerPrefill(const Sequence& sequence) const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if ((*it)->request.priority >= sequence.request.priority) break;
    if (ComputesPrompt(**it)) return it->get();
  }
  return nullptr;
}

bool BatchScheduler::FitsInPlaceOfLower(const Sequence& sequence, const Kept& kept) const {
  int64_t places = options_.max_sequences - kept.places();
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
  return places > 0 && BlocksFor(sequence) <= blocks;
}

// Those that others were preempted for have the first claim on what these gave up.
void BatchScheduler::AdmitOwed(Kept* kept) {
  std::vector<Sequence*> owed;
  for (const auto& sequence : waiting_.sequences()) {
    if (sequence->owed_place) owed.push_back(sequence.get());
  }
  for (Sequence* sequence : owed) {
    sequence->owed_place =
        sequence->has_credit && TryAdmit(sequence, kept) == Admission::kRestoring;
  }
}

// In order: no one overtakes a sequence for which there is no place or no KV, or large prompts
// would wait without end behind small ones. Only those do whose principals are owed a place.
void BatchScheduler::AdmitWaiting() {
  if (waiting_.size() == 0) return;
  Kept kept;
  AdmitOwed(&kept);
  PrefixesUnderWay under_way = FindPrefixesUnderWay();
  AdmissionTurns turns(&waiting_);
  std::optional<int32_t> full_for;  // the priority of the first without room
  int passed_over = 0;
  while (Sequence* sequence = turns.Next()) {
    if (full_for.has_value() && sequence->request.priority < *full_for) break;
    if (sequence->owed_place || under_way.Hold(sequence)) {
      turns.Pass();
      continue;
    }
    Admission admission = Admission::kNoRoom;
    if (!full_for.has_value()) admission = AdmitInPlaceOfStalled(sequence, &kept);
    if (admission == Admission::kNoRoom) {
      full_for = sequence->request.priority;
      admission = AdmitInPlaceOfHolders(sequence, &kept);
    }
    if (admission == Admission::kAdmitted && ComputesPrompt(*sequence)) under_way.Add(sequence);
    if (admission == Admission::kAdmitted || admission == Admission::kRestoring) {
      turns.Pass();
      continue;
    }
    if (++passed_over == kMaxPassedOver) break;
    admission == Admission::kNoRoom ? turns.PassLine() : turns.PassOver();
  }
  looks_ += turns.looks();
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

// Of a sequence for which there is no room in its turn.
BatchScheduler::Admission BatchScheduler::AdmitInPlaceOfHolders(Sequence* sequence, Kept* kept) {
  const std::vector<Sequence*> victims = FairVictims(running_, kept->restoring, *sequence);
  if (victims.empty()) return Admission::kNoRoom;
  if (KeepForRestored(sequence, kept)) return Admission::kRestoring;
  const Admission judged = JudgeRows(sequence);
  if (judged != Admission::kAdmitted) return judged;
  const std::optional<size_t> needed = VictimsNeeded(*sequence, *kept, victims);
  if (!needed.has_value()) return Admission::kNoRoom;
  for (size_t i = 0; i < *needed; ++i) Preempt(victims[i]);
  const Admission admission = TryAdmit(sequence, kept);
  sequence->owed_place = admission == Admission::kRestoring;
  return admission;
}

// How many of the victims have to go, from the first on; nullopt if all of them are not enough.
std::optional<size_t> BatchScheduler::VictimsNeeded(const Sequence& sequence, const Kept& kept,
                                                    absl::Span<Sequence* const> victims) const {
  int64_t places = options_.max_sequences - running() - kept.places();
  int64_t blocks = cache_->blocks_free() - kept.blocks - BlocksFor(sequence);
  for (const auto& other : running_) blocks -= BlocksSpokenFor(*other);
  for (size_t gone = 0; gone <= victims.size(); ++gone) {
    if (gone > 0) {
      ++places;
      blocks += BlocksSpokenFor(*victims[gone - 1]) + victims[gone - 1]->lease.blocks_held_alone();
    }
    if (places > 0 && blocks >= 0) return gone;
  }
  return std::nullopt;
}

// Admits, or has its KV restored, when the whole of the sequence fits beside what is spoken for and
// kept.
BatchScheduler::Admission BatchScheduler::TryAdmit(Sequence* sequence, Kept* kept) {
  if (KeepForRestored(sequence, kept)) return Admission::kRestoring;
  if (running() + kept->places() >= options_.max_sequences) return Admission::kNoRoom;
  const Admission judged = JudgeRows(sequence);
  if (judged != Admission::kAdmitted) return judged;
  int64_t spoken_for = kept->blocks;
  for (const auto& other : running_) spoken_for += BlocksSpokenFor(*other);
  KvLease& lease = sequence->lease;
  lease.AttachPrefix(sequence->reusable());
  const int64_t need = BlocksFor(*sequence) - lease.blocks_held();
  while (need > cache_->blocks_free() - spoken_for) {
    if (GiveBackRestore(int64_t{sequence->request.priority} - 1)) continue;
    lease.Reset();
    return Admission::kNoRoom;
  }
  if (BeginRestore(sequence)) {
    KeepForRestored(sequence, kept);
    return Admission::kRestoring;
  }
  // The disk does not give what JudgeRows counted on.
  const int64_t left = decoder_->PendingRows(*sequence);
  if (restores_ != nullptr && rows_.Judge(PromptOf(*sequence, left)) != PromptRows::Turn::kNow) {
    lease.Reset();
    return Admission::kNoRows;
  }
  Admit(sequence);
  return Admission::kAdmitted;
}

// kAdmitted: it may begin, as far as rows go.
BatchScheduler::Admission BatchScheduler::JudgeRows(Sequence* sequence) const {
  const auto tokens = static_cast<int64_t>(sequence->tokens.size());
  switch (rows_.Judge(PromptOf(*sequence, tokens - KnownTokens(sequence)))) {
    case PromptRows::Turn::kNow:
      return Admission::kAdmitted;
    case PromptRows::Turn::kNoRows:
      return Admission::kNoRows;
    case PromptRows::Turn::kNoSlot:
      return Admission::kNoSlot;
  }
  return Admission::kNoRows;
}

// Whose KV is in memory, or may still be read from the disk.
int64_t BatchScheduler::KnownTokens(Sequence* sequence) const {
  if (restores_ == nullptr || sequence->restore_tried) {
    return sequence->lease.CachedTokens(sequence->reusable());
  }
  return sequence->lease.FindPrefix(sequence->reusable()).tokens;
}

// With what it has attached.
void BatchScheduler::Admit(Sequence* sequence) {
  const KvLease& lease = sequence->lease;
  lease.NoteUse();
  sequence->admitted = true;
  if (!sequence->cached_at_admission.has_value()) {
    sequence->cached_at_admission = lease.slots();
  }
  sequence->outputs_at_admission = sequence->outputs();
  sequence->computed_at_admission = decoder_->PendingRows(*sequence);
  // What is computed anew because others took its KV is not its principal's doing.
  if (!std::exchange(sequence->charged, true)) {
    waiting_.ChargePrompt(*sequence, sequence->computed_at_admission);
  }
  ++admissions_;
  rows_.Add(PromptOf(*sequence, sequence->computed_at_admission));
  Insert(waiting_.Take(sequence), &running_);
}

int64_t BatchScheduler::BlocksFor(const Sequence& sequence) const {
  return cache_->BlocksFor(sequence.tokens.size(), options_.prefill_chunk);
}

// What a running sequence still needs for its prompt, and one more block: without that the next
// step would preempt.
int64_t BatchScheduler::BlocksSpokenFor(const Sequence& sequence) const {
  return std::max<int64_t>(0, BlocksFor(sequence) - sequence.lease.blocks_held()) +
         cache_->groups();
}

// Whether it waits for its KV from a disk.
bool BatchScheduler::KeepForRestored(Sequence* sequence, Kept* kept) {
  if (restores_ == nullptr) return false;
  const std::optional<int64_t> covered = restores_->CoveredBlocks(sequence);
  if (!covered.has_value()) return false;
  kept->restoring.push_back(sequence);
  kept->blocks += std::max<int64_t>(0, BlocksFor(*sequence) - *covered);
  return true;
}

// Of one for which there is room, and which has attached what memory has.
bool BatchScheduler::BeginRestore(Sequence* sequence) {
  if (restores_ == nullptr || sequence->restore_tried || sequence->scores_prompt()) return false;
  sequence->lease.Reset();
  const KvRestores::Terms terms = {.now = now_,
                                   .prompt_rows_per_second = rates_.prompt_rows_per_second};
  if (restores_->Begin(sequence, terms)) return true;
  sequence->lease.AttachPrefix(sequence->tokens);
  return false;
}

}  // namespace tidepool::engine
