// Admission: which waiting sequences begin to run in a plan, and which running ones give way.
//
// - Sequences are admitted in the order of AdmissionQueue while places, rows and KV blocks last.
//   The first without a place or blocks holds up those after it. One that would get no rows yet
//   lets shorter prompts pass. One whose prefix a running sequence computes now waits for that
//   prefix.
// - A higher priority takes places and blocks from running sequences of lower priority, and a
//   principal takes them from principals that hold more places than it (FairVictims).
// - A sequence whose KV is better read back from a disk waits for that. Its place and blocks are
//   kept, and those after it are admitted beside them.
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
  // All outlive it.
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // One plan's admissions. Restores that begin are judged by `terms`. Requires: the running
  // sequences have begun the step, and none of them is planned yet.
  void Run(const KvRestores::Terms& terms);

  // A running sequence loses its KV and waits again; it will be computed again.
  void Preempt(Sequence* sequence);
  // Ends a restore of `most_priority` or less, whose blocks are then free. False: there is none.
  bool GiveBackRestore(int64_t most_priority);

  // Totals.
  int64_t admissions() const { return admissions_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t looks() const { return looks_; }  // at waiting sequences

 private:
  enum class Outcome : uint8_t {
    kNoRoom,         // no place, or too few blocks
    kNoRows,         // others use the rows of this step
    kNoPrefillSlot,  // too many prompts are computed in part
    kRestoring,      // it waits for its KV, and there is room for it
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
