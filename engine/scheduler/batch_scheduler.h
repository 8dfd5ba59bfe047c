// BatchScheduler: decides which sequences run in the next step, how many rows each has, and which
// KV blocks they use. It does continuous batching with chunked prefill:
//
// - Each sequence that decodes gets one row. Prompts share the other rows (RunningSequences).
//   Running sequences get KV blocks in order of priority, and then of arrival.
// - Admission admits waiting sequences, and preempts running ones for them.
// - If there is no block for a running sequence, another sequence is preempted: one without credit,
//   or, if all have credit, the last in order. A preempted sequence loses its KV and waits again.
// - A sequence without credit is not planned. It keeps its KV until another sequence
//   needs the blocks.
// - A sequence that cannot have its first token before its deadline is refused (DeadlineJudge).
//
// For n waiting sequences and p different lengths of prefixes in flight, a plan takes O(p n log n)
// time. The tokens of a sequence are hashed once, not in every plan.
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

// One sequence's part of a step. Its span in the batch has the same index.
struct PlanItem {
  Sequence* sequence = nullptr;
  KvReservation reservation;
};

// The plan of one step. When it is destroyed, the KV that it reserved is freed.
struct StepPlan {
  Batch batch;
  std::vector<PlanItem> items;
  // sequences that ended with an error, removed from the scheduler
  std::vector<EndedSequence> ended;
};

// Engine thread only. Starts no threads and reads no clock.
class BatchScheduler {
 public:
  // The cache, decoder and restores must outlive this object. If `restores` is null, no KV is read
  // from a disk.
  BatchScheduler(const SchedulerOptions& options, KvCache* cache, const Decoder* decoder,
                 KvRestores* restores = nullptr);
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

  // Adds a waiting sequence, and gives it a new lease of the cache.
  void Add(std::unique_ptr<Sequence> sequence);

  // Calls RunningSequences::SetLimits. The limits apply from the next plan on.
  void SetLimits(const StepLimits& limits) { running_.SetLimits(limits); }
  // Sets the rates that decisions about deadlines and restores use.
  void SetRates(const MeasuredRates& rates) { deadlines_.SetRates(rates); }

  // Plans the next step. `now` must be from the clock that deadlines use. Only one plan may exist
  // at a time. Requires: before the next call, Commit was called for each item whose rows were
  // computed.
  StepPlan Plan(absl::Duration now);

  // Records that the item's rows were computed, so that their KV is final.
  void Commit(PlanItem* item, const RowSpan& span);

  // Removes a running sequence and frees its KV. Requires: the plan that contains the sequence was
  // committed or destroyed, or its reservation was kept.
  std::unique_ptr<Sequence> Remove(Sequence* sequence);
  // Removes all running and all waiting sequences.
  std::vector<std::unique_ptr<Sequence>> RemoveAll();

  int64_t running() const { return running_.size(); }
  int64_t waiting() const { return waiting_.size(); }
  // Totals since the start.
  int64_t admissions() const { return admission_.admissions(); }
  int64_t preemptions() const { return admission_.preemptions(); }
  int64_t deadline_refusals() const { return deadlines_.refusals(); }
  // Number of times that a waiting sequence was examined, when it was new or when the next turn was
  // chosen. This measures the cost of plans when many sequences wait. It does not include the
  // checks of each sequence's deadline and credit.
  int64_t looks() const { return deadlines_.looks() + admission_.looks(); }
  // Number of rows that sequences must still compute before their next token. Sequences that decode
  // are not counted.
  int64_t QueuedPromptTokens() const;
  // Returns whether the latest plan found a sequence with credit.
  bool HasReady() const;
  // The earliest deadline of all sequences and restores, or InfiniteDuration if there is none.
  absl::Duration NextDeadline() const;

 private:
  void End(std::vector<EndedSequence> failed, StepPlan* plan);
  void EndDoomed(absl::Duration now, StepPlan* plan);
  absl::Status Doom(const Sequence& sequence, absl::Duration now) const;
  void ReadCredit();
  void PlanRunning(StepPlan* plan);
  void PlanOrPreempt(Sequence* sequence, int64_t max_rows, StepPlan* plan);
  bool PlanSequence(Sequence* sequence, int64_t max_rows, StepPlan* plan);
  void PlanCheckpoints(StepPlan* plan);
  Sequence* Victim(const Sequence* for_whom) const;

  const SchedulerOptions options_;
  KvCache* const cache_;
  const Decoder* const decoder_;
  KvRestores* const restores_;  // null if there is no disk
  DeadlineJudge deadlines_;
  RunningSequences running_;
  AdmissionQueue waiting_;
  Admission admission_;
  // rows of logits that are still free in the current plan, besides one for each sequence
  int64_t spare_logit_rows_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_BATCH_SCHEDULER_H_
