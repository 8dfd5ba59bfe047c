// RunningSequences: the sequences that run, and the distribution of a step's rows among their
// prompts.
//
// Each sequence that decodes gets one row, and one more for each forced token (Sequence::forced).
// Prompts in prefill share the other rows, as PromptRows defines. A prompt gets at most the prefill
// chunk. All prompts together get fewer rows if sequences that decode would otherwise wait too
// long.
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
  int64_t prefill_chunk = 512;  // maximum prompt rows of one sequence per step
  // maximum running sequences; at most limits.rows and limits.logit_rows
  int64_t max_sequences = 64;
  // Maximum number of prompts that hold KV and are not completely computed. Requires: at least 1.
  int64_t max_concurrent_prefills = 4;
  int64_t short_slots = 0;  // the value of Model::short_slots
};

// The current limits for the rows of a step. They depend on measurements, so they change.
struct StepLimits {
  // Maximum prompt rows of one sequence. If this is less than SchedulerOptions::prefill_chunk, all
  // prompt rows of a step together have the same limit, except for one row per sequence.
  int64_t prefill_chunk = 0;
  int64_t attention_depth = 0;  // see PromptRowLimits; 0: chunks have the same size at every depth
  int64_t mixed_rows = 0;       // maximum prompt rows of a step that also has decodes
};

// Engine thread only.
class RunningSequences {
 public:
  // The decoder must outlive this object. Requires: there is at least one row for every sequence,
  // so that all running sequences can continue.
  RunningSequences(const SchedulerOptions& options, const Decoder* decoder);

  // Requires: 1 <= prefill_chunk <= options.prefill_chunk, mixed_rows >= 1.
  void SetLimits(const StepLimits& limits);

  // Begins a new step with the sequences that run now.
  void BeginStep();
  // Returns whether a waiting prompt with `left` rows may begin in this step.
  PromptRows::Turn JudgeRows(const Sequence& sequence, int64_t left) const;
  // Returns the number of rows of each prompt in this step. The key is the sequence's `arrival`. A
  // sequence that is not in the result decodes.
  absl::flat_hash_map<uint64_t, int64_t> SharePromptRows() const { return rows_.Share(); }

  // Adds a running sequence. It has `left` rows to compute before its next token.
  void Insert(std::unique_ptr<Sequence> sequence, int64_t left);
  // Removes a sequence. Its rows in this step are given to others.
  std::unique_ptr<Sequence> Take(const Sequence* sequence);
  // Removes a sequence that is done. The rows of this step do not change.
  std::unique_ptr<Sequence> TakeDone(const Sequence* sequence);
  std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge) {
    return engine::TakeFailed(judge, &running_);
  }

  const SequenceQueue& sequences() const { return running_; }
  int64_t size() const { return static_cast<int64_t>(running_.size()); }
  bool empty() const { return running_.empty(); }
  // The last sequence in the order of GoesBefore. Requires: not empty.
  Sequence* last() const { return running_.back().get(); }
  // The last sequence in order that has no credit, or null if there is none.
  Sequence* LastStalled() const;
  // The last sequence in order that has a lower priority and computes its prompt, or null if there
  // is none.
  Sequence* LastPrefillBelow(int32_t priority) const;
  // Returns how many rows a decoding sequence computes in a step: one for its last sampled token,
  // and one for each forced token after it. The maximum is limits.rows / max_sequences, so each
  // sequence gets an equal share.
  int64_t DecodeRows(const Sequence& sequence) const;
  // Returns whether this running sequence must compute more rows than those of a sequence that
  // decodes.
  bool ComputesPrompt(const Sequence& sequence) const;
  // Returns the blocks that running prompts will compute next.
  InFlightPrefixes FindInFlightPrefixes() const;
  // Number of prompt rows that must still be computed.
  int64_t PendingPromptRows() const;

 private:
  int64_t PromptRowsOfStep() const;

  const SchedulerOptions options_;
  const Decoder* const decoder_;
  StepLimits limits_;
  PromptRows rows_;  // the prompts of the current step
  SequenceQueue running_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_RUNNING_SEQUENCES_H_
