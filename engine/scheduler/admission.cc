#include "engine/scheduler/admission.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/scheduler/admission_turns.h"
#include "engine/scheduler/fair_preemption.h"
#include "engine/scheduler/in_flight_prefixes.h"

namespace tidepool::engine {
namespace {

// Maximum number of waiting sequences that a plan examines without admitting them.
constexpr int kMaxPassedOver = 64;

}  // namespace

void Admission::Run(const KvRestores::Terms& terms) {
  terms_ = terms;
  PreemptForWaiting();
  AdmitWaiting();
}

AdmissionRoom Admission::NewRoom() const {
  return AdmissionRoom({.max_sequences = parts_.options.max_sequences,
                        .prefill_chunk = parts_.options.prefill_chunk,
                        .cache = parts_.cache,
                        .running = parts_.running,
                        .restores = parts_.restores});
}

// If preempting running sequences with a lower priority frees enough places and blocks for waiting
// sequences, preempts them. Must run before anything is planned, so that no planned sequence loses
// its KV.
void Admission::PreemptForWaiting() {
  const auto lower_runs = [this](const Sequence& sequence) {
    return !parts_.running->empty() &&
           parts_.running->last()->request.priority < sequence.request.priority;
  };
  if (parts_.waiting->size() == 0 || !lower_runs(*parts_.waiting->sequences().front())) return;
  AdmissionTurns turns(parts_.waiting);
  AdmissionRoom room = NewRoom();
  int passed_over = 0;
  for (Sequence* next = turns.Next(); next != nullptr && lower_runs(*next); next = turns.Next()) {
    if (parts_.running->FindInFlightPrefixes().Hold(next)) break;
    const Outcome outcome = AdmitInPlaceOfLower(next, &room);
    if (outcome == Outcome::kNoRoom) break;
    if (outcome == Outcome::kNoRows || outcome == Outcome::kNoPrefillSlot) {
      if (++passed_over == kMaxPassedOver) break;
      turns.PassOver();
    } else {
      turns.Pass();
    }
  }
  looks_ += turns.looks();
}

Admission::Outcome Admission::AdmitInPlaceOfLower(Sequence* sequence, AdmissionRoom* room) {
  Outcome outcome = TryAdmit(sequence, room);
  while (outcome == Outcome::kNoPrefillSlot) {
    Sequence* prefill = parts_.running->LastPrefillBelow(sequence->request.priority);
    if (prefill == nullptr) return outcome;
    Preempt(prefill);
    outcome = TryAdmit(sequence, room);
  }
  if (outcome != Outcome::kNoRoom || !room->FitsInPlaceOfLower(*sequence) ||
      JudgePrompt(sequence) != Outcome::kAdmitted) {
    return outcome;
  }
  while (outcome == Outcome::kNoRoom && !parts_.running->empty() &&
         parts_.running->last()->request.priority < sequence->request.priority) {
    Preempt(parts_.running->last());
    outcome = TryAdmit(sequence, room);
  }
  return outcome;
}

// The sequences for which others were preempted are the first to get places and blocks.
void Admission::AdmitOwed(AdmissionRoom* room) {
  std::vector<Sequence*> owed;
  for (const auto& sequence : parts_.waiting->sequences()) {
    if (sequence->admission.owed_place) owed.push_back(sequence.get());
  }
  for (Sequence* sequence : owed) {
    sequence->admission.owed_place =
        sequence->has_credit && TryAdmit(sequence, room) == Outcome::kRestoring;
  }
}

// Admits sequences in order. If there is no place, or too little KV memory, for a sequence, the
// sequences after it must wait. Otherwise small prompts could delay large ones without limit. There
// is one exception: a sequence whose principal has fewer places than others may still be admitted.
void Admission::AdmitWaiting() {
  if (parts_.waiting->size() == 0) return;
  AdmissionRoom room = NewRoom();
  AdmitOwed(&room);
  InFlightPrefixes in_flight = parts_.running->FindInFlightPrefixes();
  AdmissionTurns turns(parts_.waiting);
  std::optional<int32_t> full_for;  // priority of the first sequence for which there is no room
  int passed_over = 0;
  while (Sequence* sequence = turns.Next()) {
    if (full_for.has_value() && sequence->request.priority < *full_for) break;
    if (sequence->admission.owed_place || in_flight.Hold(sequence)) {
      turns.Pass();
      continue;
    }
    Outcome outcome = Outcome::kNoRoom;
    if (!full_for.has_value()) outcome = AdmitInPlaceOfStalled(sequence, &room);
    if (outcome == Outcome::kNoRoom) {
      full_for = sequence->request.priority;
      outcome = AdmitInPlaceOfHolders(sequence, &room);
    }
    if (outcome == Outcome::kAdmitted && parts_.running->ComputesPrompt(*sequence)) {
      in_flight.Add(sequence);
    }
    if (outcome == Outcome::kAdmitted || outcome == Outcome::kRestoring) {
      turns.Pass();
      continue;
    }
    if (++passed_over == kMaxPassedOver) break;
    outcome == Outcome::kNoRoom ? turns.PassLine() : turns.PassOver();
  }
  looks_ += turns.looks();
}

Admission::Outcome Admission::AdmitInPlaceOfStalled(Sequence* sequence, AdmissionRoom* room) {
  Outcome outcome = TryAdmit(sequence, room);
  while (outcome == Outcome::kNoRoom) {
    Sequence* stalled = parts_.running->LastStalled();
    if (stalled == nullptr) break;
    Preempt(stalled);
    outcome = TryAdmit(sequence, room);
  }
  return outcome;
}

// Called if there is no room for a sequence in its turn. Preempts sequences of principals that hold
// more places.
Admission::Outcome Admission::AdmitInPlaceOfHolders(Sequence* sequence, AdmissionRoom* room) {
  const std::vector<Sequence*> victims =
      FairVictims(parts_.running->sequences(), room->restoring(), *sequence);
  if (victims.empty()) return Outcome::kNoRoom;
  if (room->KeepForRestored(sequence)) return Outcome::kRestoring;
  const Outcome judged = JudgePrompt(sequence);
  if (judged != Outcome::kAdmitted) return judged;
  const std::optional<size_t> needed = room->VictimsNeeded(*sequence, victims);
  if (!needed.has_value()) return Outcome::kNoRoom;
  for (size_t i = 0; i < *needed; ++i) Preempt(victims[i]);
  const Outcome outcome = TryAdmit(sequence, room);
  sequence->admission.owed_place = outcome == Outcome::kRestoring;
  return outcome;
}

// If the sequence fits, without using reserved blocks, admits it or begins to restore its KV.
Admission::Outcome Admission::TryAdmit(Sequence* sequence, AdmissionRoom* room) {
  if (room->KeepForRestored(sequence)) return Outcome::kRestoring;
  if (!room->HasPlace()) return Outcome::kNoRoom;
  const Outcome judged = JudgePrompt(sequence);
  if (judged != Outcome::kAdmitted) return judged;
  const int64_t spoken_for = room->BlocksSpokenFor();
  KvLease& lease = sequence->lease;
  lease.AttachPrefix(sequence->reusable());
  const int64_t need = room->BlocksFor(*sequence) - lease.blocks_held();
  while (need > parts_.cache->blocks_free() - spoken_for) {
    if (GiveBackRestore(int64_t{sequence->request.priority} - 1)) continue;
    lease.Reset();
    return Outcome::kNoRoom;
  }
  if (BeginRestore(sequence)) {
    room->KeepForRestored(sequence);
    return Outcome::kRestoring;
  }
  // There may be more rows to compute than before, if the disk no longer has tokens that
  // KnownTokens counted.
  if (parts_.restores != nullptr &&
      JudgeRows(*sequence, parts_.decoder->PendingRows(*sequence)) != Outcome::kAdmitted) {
    lease.Reset();
    return Outcome::kNoRows;
  }
  Admit(sequence);
  return Outcome::kAdmitted;
}

// Returns kAdmitted if a sequence with `left` rows to compute may begin. Only considers rows, not
// places and blocks.
Admission::Outcome Admission::JudgeRows(const Sequence& sequence, int64_t left) const {
  switch (parts_.running->JudgeRows(sequence, left)) {
    case PromptRows::Turn::kNow:
      return Outcome::kAdmitted;
    case PromptRows::Turn::kNoRows:
      return Outcome::kNoRows;
    case PromptRows::Turn::kNoSlot:
      return Outcome::kNoPrefillSlot;
  }
  return Outcome::kNoRows;
}

// Like JudgeRows, for the rows that are left after the sequence has got its cached KV.
Admission::Outcome Admission::JudgePrompt(Sequence* sequence) const {
  const auto tokens = static_cast<int64_t>(sequence->tokens.size());
  return JudgeRows(*sequence, tokens - KnownTokens(sequence));
}

// Returns the number of tokens whose KV is in memory, or can be read from the disk.
int64_t Admission::KnownTokens(Sequence* sequence) const {
  if (parts_.restores == nullptr || sequence->admission.restore_tried) {
    return sequence->lease.CachedTokens(sequence->reusable());
  }
  return sequence->lease.FindPrefix(sequence->reusable()).tokens;
}

// Begins to read the KV of a sequence from the disk. Requires: there is room for the sequence, and
// its KV in memory is attached.
bool Admission::BeginRestore(Sequence* sequence) {
  if (parts_.restores == nullptr || sequence->admission.restore_tried ||
      sequence->scores_prompt()) {
    return false;
  }
  sequence->lease.Reset();
  if (parts_.restores->Begin(sequence, terms_)) return true;
  sequence->lease.AttachPrefix(sequence->tokens);
  return false;
}

// Admits a sequence with the KV that is attached to its lease.
void Admission::Admit(Sequence* sequence) {
  sequence->lease.NoteUse();
  sequence->admitted = true;
  AdmissionState& state = sequence->admission;
  if (!state.cached_tokens.has_value()) {
    state.cached_tokens = sequence->lease.slots();
    sequence->lease.NoteStart(sequence->tokens);
  }
  state.outputs_before = sequence->outputs();
  state.left_to_compute = parts_.decoder->PendingRows(*sequence);
  // Tokens are charged only once. If the sequence lost its KV to others, its principal does not pay
  // again.
  if (!std::exchange(state.charged, true)) {
    parts_.waiting->ChargePrompt(*sequence, state.left_to_compute);
  }
  ++admissions_;
  parts_.running->Insert(parts_.waiting->Take(sequence), state.left_to_compute);
}

void Admission::Preempt(Sequence* sequence) {
  std::unique_ptr<Sequence> taken = parts_.running->Take(sequence);
  taken->lease.Reset();
  taken->admitted = false;
  taken->admission.restore_tried = false;
  taken->admission.owed_place = false;
  // If the sequence was preempted because its client did not read, its principal pays again.
  if (!taken->has_credit) taken->admission.charged = false;
  ++preemptions_;
  parts_.waiting->Add(std::move(taken));
}

bool Admission::GiveBackRestore(int64_t max_priority) {
  return parts_.restores != nullptr && parts_.restores->GiveBack(max_priority);
}

}  // namespace tidepool::engine
