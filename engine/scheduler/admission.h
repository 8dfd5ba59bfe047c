// Admission: decides which waiting sequences begin to run in a plan, and which running sequences
// are preempted for them.
//
// - Sequences are admitted in the order of AdmissionQueue, as long as there are places
//   (max_sequences), rows and KV blocks. If there is no place or there are not enough blocks for
//   the first sequence, the sequences after it must wait, too. A sequence whose prompt would get no
//   rows yet does not block shorter prompts after it. A sequence waits while a running sequence
//   computes a prefix that the waiting sequence can use.
// - A sequence with a higher priority takes places and blocks from running sequences with a lower
//   priority. A principal takes places and blocks from principals that hold more places
//   (FairVictims).
// - If reading a sequence's KV from a disk is faster than computing it, the sequence waits for the
//   read. Its place and its blocks are reserved, and later sequences are admitted meanwhile.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_H_
#define TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_H_

#include <cstdint>

#include "engine/kv/kv_cache.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/admission_room.h"
#include "engine/scheduler/decoder.h"
#include "engine/scheduler/kv_restores.h"
#include "engine/scheduler/running_sequences.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only.
class Admission {
 public:
  struct Parts {
    SchedulerOptions options;
    KvCache* cache = nullptr;
    const Decoder* decoder = nullptr;
    KvRestores* restores = nullptr;  // null if there is no disk
    RunningSequences* running = nullptr;
    AdmissionQueue* waiting = nullptr;
  };
  // All parts must outlive this object.
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // Makes the admissions of one plan. `terms` determine which restores begin. Requires:
  // RunningSequences::BeginStep was called, and no running sequence is planned yet.
  void Run(const KvRestores::Terms& terms);

  // Frees the KV of a running sequence. The sequence waits again, and its KV must be computed
  // again.
  void Preempt(Sequence* sequence);
  // Ends a restore whose priority is at most `max_priority`, so that its blocks become free.
  // Returns false if there is no such restore.
  bool GiveBackRestore(int64_t max_priority);

  // Totals since the start.
  int64_t admissions() const { return admissions_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t looks() const { return looks_; }  // number of waiting sequences that were examined

 private:
  enum class Outcome : uint8_t {
    kNoRoom,         // there is no place, or there are not enough blocks
    kNoRows,         // all rows of this step are used
    kNoPrefillSlot,  // too many prompts are partly computed already
    kRestoring,      // it waits for its KV to be read; its place and blocks are reserved
    kAdmitted,
  };

  AdmissionRoom NewRoom() const;
  void PreemptForWaiting();
  Outcome AdmitInPlaceOfLower(Sequence* sequence, AdmissionRoom* room);
  void AdmitOwed(AdmissionRoom* room);
  void AdmitWaiting();
  Outcome AdmitInPlaceOfStalled(Sequence* sequence, AdmissionRoom* room);
  Outcome AdmitInPlaceOfHolders(Sequence* sequence, AdmissionRoom* room);
  Outcome TryAdmit(Sequence* sequence, AdmissionRoom* room);
  Outcome JudgeRows(const Sequence& sequence, int64_t left) const;
  Outcome JudgePrompt(Sequence* sequence) const;
  int64_t KnownTokens(Sequence* sequence) const;
  bool BeginRestore(Sequence* sequence);
  void Admit(Sequence* sequence);

  const Parts parts_;
  KvRestores::Terms terms_;  // the terms of the current plan
  int64_t admissions_ = 0;
  int64_t preemptions_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_H_
