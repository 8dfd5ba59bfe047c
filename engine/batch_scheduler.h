// BatchScheduler: which sequences run in the next step, with how many rows each, and on which KV
// blocks. Continuous batching with chunked prefill:
//
// - Each sequence that decodes gets its row. Prompts in prefill share the other rows, as PromptRows
//   says: at most prefill_chunk rows each, and fewer in all where decodes would wait for them
//   (SetMixedRows). KV goes to running sequences in order of priority, then arrival.
// - Waiting sequences are admitted in the order of AdmissionQueue while places, rows and KV blocks
//   last. The first for which there is no place or no KV blocks those behind it. One that would get
//   no rows yet lets shorter prompts pass. One whose prefix a running sequence computes now waits
//   for that instead of computing it again.
// - When a running sequence finds no block, another one loses its KV and waits again, to be
//   computed anew: one that lacks credit, else the last in order. One that waits takes places and
//   blocks in the same way from those of lower priority, and from principals that hold more places
//   than its own (FairVictims).
// - A sequence without credit is not planned; it keeps its KV until somebody else needs it.
// - One for which there is room, and whose KV is better read back from a disk, waits for that.
//   Those behind it are admitted meanwhile beside the place and the blocks that are kept for it. It
//   gives back what has come to those of higher priority, and to its equals that run.
// - What cannot have its first token before its deadline is ended before it costs anything.
//
// A plan costs n log n at most for the n sequences that wait, times the different lengths of
// prefixes under way; a sequence's tokens are hashed once, not once a plan.
#ifndef TIDEPOOL_ENGINE_BATCH_SCHEDULER_H_
#define TIDEPOOL_ENGINE_BATCH_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/admission_queue.h"
#include "engine/decoder.h"
#include "engine/kv_cache.h"
#include "engine/kv_restores.h"
#include "engine/model/batch.h"
#include "engine/model/model.h"
#include "engine/prefixes_under_way.h"
#include "engine/prompt_rows.h"
#include "engine/sequence.h"
#include "engine/step_pace.h"

namespace tidepool::engine {

struct SchedulerOptions {
  BatchLimits limits;
  int64_t prefill_chunk = 512;  // most prompt rows of one sequence in one step, ever
  int64_t max_sequences = 64;   // running; at most limits.rows and limits.logit_rows
  // Prompts that hold KV and are computed in part. Requires: at least 1.
  int64_t max_concurrent_prefills = 4;
};

// One sequence's part in a step: its span is the batch's of the same index.
struct PlanItem {
  Sequence* sequence = nullptr;
  KvReservation reservation;
};

// What one step does. Dropping it gives back the KV that it reserved.
struct StepPlan {
  Batch batch;
  std::vector<PlanItem> items;
  std::vector<EndedSequence> ended;  // which the scheduler no longer knows
};

// Engine thread only; starts no threads, reads no clock. The cache, decoder and restores outlive
// it.
class BatchScheduler {
 public:
  // Without `restores` no KV comes back from a disk.
  BatchScheduler(const SchedulerOptions& options, KvCache* cache, const Decoder* decoder,
                 KvRestores* restores = nullptr);

  // It waits from now on, with a lease of the cache instead of what it had.
  void Add(std::unique_ptr<Sequence> sequence);

  // Most prompt rows of one sequence in a step from now on. Where that is less than
  // options.prefill_chunk, a step has no more rows in all, but for the one of each sequence.
  // Requires: 1 <= rows <= options.prefill_chunk.
  void SetPrefillChunk(int64_t rows);
  // Most prompt rows in all of a step that has decodes too. Requires: rows >= 1.
  void SetMixedRows(int64_t rows);
  // What deadlines are judged by.
  void SetRates(const MeasuredRates& rates) { rates_ = rates; }

  // The next step; `now` is of the clock that deadlines are of. At most one plan at a time.
  // Requires of the caller, before the next call: Commit for each item whose rows were computed, or
  // nothing for those that were not.
  StepPlan Plan(absl::Duration now);

  // The item's rows are computed: their KV is final.
  void Commit(PlanItem* item, const Span& span);

  // Takes a running sequence out; its KV is given back. Requires: the plan that holds it is
  // committed or dropped, or its reservation kept.
  std::unique_ptr<Sequence> Remove(Sequence* sequence);
  // Takes all out, running and waiting.
  std::vector<std::unique_ptr<Sequence>> RemoveAll();

  int64_t running() const { return running_.size(); }
  int64_t waiting() const { return waiting_.size(); }
  // Totals.
  int64_t admissions() const { return admissions_; }
  int64_t preemptions() const { return preemptions_; }
  // Ended because their deadlines could not be met.
  int64_t deadline_refusals() const { return deadline_refusals_; }
  // Looks at sequences that wait, to judge those that came and to find whose turn it is: what plans
  // cost where many do, but for a look at each one's deadline and credit.
  int64_t looks() const { return looks_; }
  // Rows that sequences still need before their next token, decodes aside.
  int64_t QueuedPromptTokens() const;
  // Whether the latest plan found a sequence that has credit.
  bool HasReady() const;
  // Of all sequences and restores; InfiniteDuration when there is none.
  absl::Duration NextDeadline() const;

 private:
  // Places and blocks for those that wait for their KV, of which no one behind them may take any.
  struct Kept {
    int64_t places() const { return static_cast<int64_t>(restoring.size()); }
    std::vector<const Sequence*> restoring;
    int64_t blocks = 0;
  };
  enum class Admission : uint8_t {
    kNoRoom,     // no place, or too few blocks
    kNoRows,     // others use the rows of this step
    kNoSlot,     // too many prompts are computed in part
    kRestoring,  // it waits for its KV, and there is room for it
    kAdmitted,
  };

  void End(std::vector<EndedSequence> failed, StepPlan* plan);
  void EndDoomed(absl::Duration now, StepPlan* plan);
  absl::Status Doom(const Sequence& sequence, absl::Duration now) const;
  void ReadCredit();
  void EndHopeless(absl::Duration now, StepPlan* plan);
  absl::Duration PromptTime(const Sequence& sequence, int64_t cached) const;
  absl::Status JudgeDeadline(Sequence* sequence, absl::Duration left, int64_t ahead) const;
  void BeginRows();
  int64_t PromptRowsOfStep() const;
  int64_t StepRows() const;
  int64_t CountDecodes() const;
  void PlanRunning(StepPlan* plan);
  bool PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan);
  Sequence* Victim(const Sequence* for_whom) const;
  Sequence* StalledSequence() const;
  void Preempt(Sequence* sequence);
  bool GiveBackRestore(int64_t most_priority);
  bool ComputesPrompt(const Sequence& sequence) const;
  PrefixesUnderWay FindPrefixesUnderWay() const;

  // Admission (batch_scheduler_admission.cc).
  void PreemptForWaiting();
  Admission AdmitInPlaceOfLower(Sequence* sequence, Kept* kept);
  bool FitsInPlaceOfLower(const Sequence& sequence, const Kept& kept) const;
  Sequence* LowerPrefill(const Sequence& sequence) const;
  void AdmitOwed(Kept* kept);
  void AdmitWaiting();
  Admission AdmitInPlaceOfStalled(Sequence* sequence, Kept* kept);
  Admission AdmitInPlaceOfHolders(Sequence* sequence, Kept* kept);
  std::optional<size_t> VictimsNeeded(const Sequence& sequence, const Kept& kept,
                                      absl::Span<Sequence* const> victims) const;
  Admission TryAdmit(Sequence* sequence, Kept* kept);
  Admission JudgeRows(Sequence* sequence) const;
  int64_t KnownTokens(Sequence* sequence) const;
  void Admit(Sequence* sequence);
  int64_t BlocksFor(const Sequence& sequence) const;
  int64_t BlocksSpokenFor(const Sequence& sequence) const;
  bool KeepForRestored(Sequence* sequence, Kept* kept);
  bool BeginRestore(Sequence* sequence);

  const SchedulerOptions options_;
  KvCache* const cache_;
  const Decoder* const decoder_;
  KvRestores* const restores_;  // may be null
  absl::Duration now_;          // of the current plan
  int64_t prefill_chunk_;
  int64_t mixed_rows_;
  int64_t spare_logit_rows_ = 0;  // of the current plan, beside one of each sequence
  MeasuredRates rates_;
  PromptRows rows_;  // of the current plan
  SequenceQueue running_;
  AdmissionQueue waiting_;
  int64_t admissions_ = 0;
  int64_t preemptions_ = 0;
  int64_t deadline_refusals_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_BATCH_SCHEDULER_H_
