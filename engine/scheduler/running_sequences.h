// RunningSequences: the sequences that run, and the rows of a step that their prompts share.
//
// Each sequence that decodes gets one row. Prompts in prefill share the other rows, as PromptRows
// says: at most the prefill chunk each, and fewer in all where decodes would wait for them.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_RUNNING_SEQUENCES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_RUNNING_SEQUENCES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/model/model.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/decoder.h"
#include "engine/scheduler/in_flight_prefixes.h"
#include "engine/scheduler/prompt_rows.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

struct SchedulerOptions {
  BatchLimits limits;
  int64_t prefill_chunk = 512;  // most prompt rows of one sequence in one step, ever
  int64_t max_sequences = 64;   // running; at most limits.rows and limits.logit_rows
  // Prompts that hold KV and are computed in part. Requires: at least 1.
  int64_t max_concurrent_prefills = 4;
};

// Rows that steps may have from now on; measured, so that they change.
struct StepLimits {
  // Most prompt rows of one sequence. If this is less than SchedulerOptions::prefill_chunk, a step
  // has no more rows in all, except for the one of each sequence.
  int64_t prefill_chunk = 0;
  int64_t attention_depth = 0;  // see PromptRowLimits; 0: equal chunks to a prompt's end
  int64_t mixed_rows = 0;       // most prompt rows in all of a step that has decodes too
};

// Engine thread only.
class RunningSequences {
 public:
  // The decoder outlives it. Requires: a row for every sequence, so that each that runs can go on.
  RunningSequences(const SchedulerOptions& options, const Decoder* decoder);

  // Requires: 1 <= prefill_chunk <= options.prefill_chunk, mixed_rows >= 1.
  void SetLimits(const StepLimits& limits);

  // Shares out the rows of a new step among the sequences that run now.
  void BeginStep();
  // Whether a waiting prompt with so many rows left may begin in this step.
  PromptRows::Turn JudgeRows(const Sequence& sequence, int64_t left) const;
  // Rows of each prompt in this step, by arrival. The other sequences have one row each.
  absl::flat_hash_map<uint64_t, int64_t> SharePromptRows() const { return rows_.Share(); }

  // The sequence runs from now on, with so many rows left before its next token.
  void Insert(std::unique_ptr<Sequence> sequence, int64_t left);
  // Takes out a sequence; its rows in this step go to the others.
  std::unique_ptr<Sequence> Take(const Sequence* sequence);
  // The same for a sequence that is done: the step's rows stay as they are.
  std::unique_ptr<Sequence> TakeDone(const Sequence* sequence);
  std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge) {
    return engine::TakeFailed(judge, &running_);
  }

  const SequenceQueue& sequences() const { return running_; }
  int64_t size() const { return static_cast<int64_t>(running_.size()); }
  bool empty() const { return running_.empty(); }
  // The last in order. Requires: not empty.
  Sequence* last() const { return running_.back().get(); }
  // The last in order that has no credit, or null.
  Sequence* LastStalled() const;
  // The last in order with a lower priority that computes its prompt, or null.
  Sequence* LastPrefillBelow(int32_t priority) const;
  // Whether a running sequence is about to compute more than its last token.
  bool ComputesPrompt(const Sequence& sequence) const;
  // The blocks that running prompts compute next.
  InFlightPrefixes FindInFlightPrefixes() const;
  // Prompt rows that are still to be computed.
  int64_t PendingPromptRows() const;

 private:
  int64_t PromptRowsOfStep() const;
  int64_t CountDecodes() const;

  const SchedulerOptions options_;
  const Decoder* const decoder_;
  StepLimits limits_;
  PromptRows rows_;  // of the current step
  SequenceQueue running_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_RUNNING_SEQUENCES_H_
