// Admission: decides which waiting sequences begin to run in a plan, and which running ones are
// preempted for them.
//
// - Sequences are admitted in the order of AdmissionQueue while places, rows and KV blocks last.
//   The first one without a place or blocks blocks the ones after it. One that would get no rows
//   yet lets shorter prompts pass. One whose prefix a running sequence is computing waits for that
//   prefix.
// - A higher priority takes places and blocks from running sequences of lower priority. A principal
//   takes them from principals that hold more places than it does (FairVictims).
// - If reading a sequence's KV from a disk is faster than computing it, the sequence waits for the
//   read. Its place and blocks are reserved, and later sequences are admitted beside it.
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
    KvRestores* restores = nullptr;  // may be null
    RunningSequences* running = nullptr;
    AdmissionQueue* waiting = nullptr;
  };
  // All outlive this object.
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // Makes the admissions of one plan. `terms` decide which restores begin. Requires: the running
  // sequences have begun the step, and none of them is planned yet.
  void Run(const KvRestores::Terms& terms);

  // Takes the KV of a running sequence, which waits again and will be recomputed.
  void Preempt(Sequence* sequence);
  // Ends a restore with a priority of at most `most_priority`, which frees its blocks. Returns
  // false if there is none.
  bool GiveBackRestore(int64_t most_priority);

  // Totals.
  int64_t admissions() const { return admissions_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t looks() const { return looks_; }  // number of waiting sequences examined

 private:
  enum class Outcome : uint8_t {
    kNoRoom,         // no place, or not enough blocks
    kNoRows,         // all rows of this step are used
    kNoPrefillSlot,  // too many prompts are partly computed
    kRestoring,      // it waits for its KV, and room is reserved for it
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
  KvRestores::Terms terms_;  // of the current plan
  int64_t admissions_ = 0;
  int64_t preemptions_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_H_
