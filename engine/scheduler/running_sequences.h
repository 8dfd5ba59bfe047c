// RunningSequences: the sequences that run, and the distribution of a step's rows among their
// prompts.
//
// Each sequence that decodes gets one row. Prompts in prefill share the other rows, as PromptRows
// defines: each gets at most the prefill chunk, and all together get fewer if decodes would have to
// wait for them.
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
  int64_t prefill_chunk = 512;  // upper limit of prompt rows of one sequence per step
  int64_t max_sequences = 64;   // running; at most limits.rows and limits.logit_rows
  // Maximum number of incompletely computed prompts that hold KV. Requires: at least 1.
  int64_t max_concurrent_prefills = 4;
  int64_t short_slots = 0;  // Model::short_slots
};

// Current limits of a step's rows. They change, because they depend on measurements.
struct StepLimits {
  // Maximum prompt rows of one sequence. If this is less than SchedulerOptions::prefill_chunk, it
  // also limits all prompt rows of a step together, except for one row per sequence.
  int64_t prefill_chunk = 0;
  int64_t attention_depth = 0;  // see PromptRowLimits; 0: equal chunks to a prompt's end
  int64_t mixed_rows = 0;       // maximum prompt rows of a step that also has decodes
};

// Engine thread only.
class RunningSequences {
 public:
  // The decoder outlives this object. Requires: at least one row for every sequence, so that all
  // running ones can continue.
  RunningSequences(const SchedulerOptions& options, const Decoder* decoder);

  // Requires: 1 <= prefill_chunk <= options.prefill_chunk, mixed_rows >= 1.
  void SetLimits(const StepLimits& limits);

  // Starts a new step for the sequences that run now.
  void BeginStep();
  // Whether a waiting prompt with `left` rows may begin in this step.
  PromptRows::Turn JudgeRows(const Sequence& sequence, int64_t left) const;
  // Rows of each prompt in this step, by arrival. Each other sequence has one row.
  absl::flat_hash_map<uint64_t, int64_t> SharePromptRows() const { return rows_.Share(); }

  // Adds a running sequence, with `left` rows to compute before its next token.
  void Insert(std::unique_ptr<Sequence> sequence, int64_t left);
  // Removes a sequence. Others get its rows in this step.
  std::unique_ptr<Sequence> Take(const Sequence* sequence);
  // Same for a sequence that is done: the step's rows do not change.
  std::unique_ptr<Sequence> TakeDone(const Sequence* sequence);
  std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge) {
    return engine::TakeFailed(judge, &running_);
  }

  const SequenceQueue& sequences() const { return running_; }
  int64_t size() const { return static_cast<int64_t>(running_.size()); }
  bool empty() const { return running_.empty(); }
  // The last sequence in order. Requires: not empty.
  Sequence* last() const { return running_.back().get(); }
  // The last sequence in order without credit, or null.
  Sequence* LastStalled() const;
  // The last sequence in order that has a lower priority and computes its prompt, or null.
  Sequence* LastPrefillBelow(int32_t priority) const;
  // True if a running sequence must compute more than its last token.
  bool ComputesPrompt(const Sequence& sequence) const;
  // Returns the blocks that running prompts compute next.
  InFlightPrefixes FindInFlightPrefixes() const;
  // Number of prompt rows still to be computed.
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
