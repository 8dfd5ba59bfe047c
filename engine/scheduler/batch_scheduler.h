// BatchScheduler: decides which sequences run in the next step, with how many rows and on which KV
// blocks. It does continuous batching with chunked prefill:
//
// - Each sequence that decodes gets its row. Prompts share the others (RunningSequences). Running
//   sequences get KV in order of priority, then arrival.
// - Waiting sequences are admitted, and running ones preempted for them, by Admission.
// - If there is no block for a running sequence, another one is preempted: one that lacks credit,
// or
//   else the last in order. A preempted sequence loses its KV and waits again.
// - A sequence without credit is not planned. It keeps its KV until another one needs the blocks.
// - A sequence that cannot have its first token before its deadline is refused (DeadlineJudge).
//
// A plan takes at most n log n time for n waiting sequences, times the number of different lengths
// of prefixes in flight. A sequence's tokens are hashed once, not in every plan.
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

// One sequence's part of a step. Its span has the same index in the batch.
struct PlanItem {
  Sequence* sequence = nullptr;
  KvReservation reservation;
};

// The plan of one step. Dropping it frees the KV that it reserved.
struct StepPlan {
  Batch batch;
  std::vector<PlanItem> items;
  std::vector<EndedSequence> ended;  // sequences that the scheduler has removed
};

// Engine thread only. Starts no threads and reads no clock.
class BatchScheduler {
 public:
  // The cache, decoder and restores outlive this object. Without `restores`, no KV is read from a
  // disk.
  BatchScheduler(const SchedulerOptions& options, KvCache* cache, const Decoder* decoder,
                 KvRestores* restores = nullptr);
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

  // Adds a waiting sequence, with a new lease of the cache.
  void Add(std::unique_ptr<Sequence> sequence);

  // Same as RunningSequences::SetLimits, from the next plan on.
  void SetLimits(const StepLimits& limits) { running_.SetLimits(limits); }
  // Sets the rates for decisions about deadlines and restores.
  void SetRates(const MeasuredRates& rates) { deadlines_.SetRates(rates); }

  // Plans the next step. `now` must come from the clock of the deadlines. At most one plan may
  // exist. Requires: before the next call, the caller calls Commit for each item whose rows were
  // computed.
  StepPlan Plan(absl::Duration now);

  // The item's rows were computed, so their KV is final.
  void Commit(PlanItem* item, const RowSpan& span);

  // Removes a running sequence and frees its KV. Requires: the plan that contains it was committed
  // or dropped, or its reservation kept.
  std::unique_ptr<Sequence> Remove(Sequence* sequence);
  // Removes all sequences, running and waiting.
  std::vector<std::unique_ptr<Sequence>> RemoveAll();

  int64_t running() const { return running_.size(); }
  int64_t waiting() const { return waiting_.size(); }
  // Totals.
  int64_t admissions() const { return admission_.admissions(); }
  int64_t preemptions() const { return admission_.preemptions(); }
  int64_t deadline_refusals() const { return deadlines_.refusals(); }
  // Number of waiting sequences examined, to check new ones and to find the next turn. This
  // measures the cost of plans when many wait, except for the check of each one's deadline and
  // credit.
  int64_t looks() const { return deadlines_.looks() + admission_.looks(); }
  // Rows that sequences must still compute before their next token, without decodes.
  int64_t QueuedPromptTokens() const;
  // True if the latest plan found a sequence with credit.
  bool HasReady() const;
  // The earliest deadline of all sequences and restores. InfiniteDuration if there is none.
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
  int64_t spare_logit_rows_ = 0;  // in the current plan, besides one per sequence
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_BATCH_SCHEDULER_H_
