// BatchScheduler: which sequences run in the next step, with how many rows each, and on which KV
// blocks. Continuous batching with chunked prefill:
//
// - Each sequence that decodes gets its row; prompts share the others (RunningSequences). Running
//   sequences get KV in order of priority, then arrival.
// - Waiting sequences are admitted, and running ones preempted for them, by Admission.
// - When a running sequence finds no block, another one is preempted: one that lacks credit, else
//   the last in order. A preempted sequence loses its KV and waits again.
// - A sequence without credit is not planned; it keeps its KV until somebody else needs it.
// - A sequence that cannot have its first token before its deadline is refused (DeadlineJudge).
//
// A plan costs n log n at most for n waiting sequences, times the different lengths of prefixes in
// flight; a sequence's tokens are hashed once, not once a plan.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_BATCH_SCHEDULER_H_
#define TIDEPOOL_ENGINE_SCHEDULER_BATCH_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/batch.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/deadline_judge.h"
#include "engine/scheduler/decoder.h"
#include "engine/scheduler/kv_restores.h"
#include "engine/scheduler/running_sequences.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_cost_model.h"

namespace tidepool::engine {

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

// Engine thread only; starts no threads, reads no clock.
class BatchScheduler {
 public:
  // The cache, decoder and restores outlive it. Without `restores` no KV is read from a disk.
  BatchScheduler(const SchedulerOptions& options, KvCache* cache, const Decoder* decoder,
                 KvRestores* restores = nullptr);
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

  // The sequence waits from now on, with a new lease of the cache.
  void Add(std::unique_ptr<Sequence> sequence);

  // As RunningSequences::SetLimits, from the next plan on.
  void SetLimits(const StepLimits& limits) { running_.SetLimits(limits); }
  // What deadlines and restores are judged by.
  void SetRates(const MeasuredRates& rates) { deadlines_.SetRates(rates); }

  // The next step; `now` is of the clock that deadlines are of. At most one plan at a time.
  // Requires of the caller, before the next call: Commit for each item whose rows were computed, or
  // nothing for those that were not.
  StepPlan Plan(absl::Duration now);

  // The item's rows are computed: their KV is final.
  void Commit(PlanItem* item, const RowSpan& span);

  // Takes a running sequence out; its KV is given back. Requires: the plan that holds it is
  // committed or dropped, or its reservation kept.
  std::unique_ptr<Sequence> Remove(Sequence* sequence);
  // Takes all out, running and waiting.
  std::vector<std::unique_ptr<Sequence>> RemoveAll();

  int64_t running() const { return running_.size(); }
  int64_t waiting() const { return waiting_.size(); }
  // Totals.
  int64_t admissions() const { return admission_.admissions(); }
  int64_t preemptions() const { return admission_.preemptions(); }
  int64_t deadline_refusals() const { return deadlines_.refusals(); }
  // Looks at waiting sequences, to judge the new ones and to find whose turn it is: what plans cost
  // when many wait, except for a look at each one's deadline and credit.
  int64_t looks() const { return deadlines_.looks() + admission_.looks(); }
  // Rows that sequences still need before their next token, decodes aside.
  int64_t QueuedPromptTokens() const;
  // Whether the latest plan found a sequence that has credit.
  bool HasReady() const;
  // Of all sequences and restores; InfiniteDuration when there is none.
  absl::Duration NextDeadline() const;

 private:
  void End(std::vector<EndedSequence> failed, StepPlan* plan);
  void EndDoomed(absl::Duration now, StepPlan* plan);
  absl::Status Doom(const Sequence& sequence, absl::Duration now) const;
  void ReadCredit();
  void PlanRunning(StepPlan* plan);
  void PlanOrPreempt(Sequence* sequence, int64_t max_rows, StepPlan* plan);
  bool PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan);
  Sequence* Victim(const Sequence* for_whom) const;

  const SchedulerOptions options_;
  KvCache* const cache_;
  const Decoder* const decoder_;
  KvRestores* const restores_;  // may be null
  DeadlineJudge deadlines_;
  RunningSequences running_;
  AdmissionQueue waiting_;
  Admission admission_;
  int64_t spare_logit_rows_ = 0;  // of the current plan, beside one of each sequence
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_BATCH_SCHEDULER_H_
