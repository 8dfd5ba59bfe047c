// DeadlineJudge: refuses sequences that cannot have their first token before their deadline, before
// they cost anything. It judges by a time that is certainly needed: half of what the measured rates
// say, since they were measured on other work.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_DEADLINE_JUDGE_H_
#define TIDEPOOL_ENGINE_SCHEDULER_DEADLINE_JUDGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_cost_model.h"

namespace tidepool::engine {

// Engine thread only.
class DeadlineJudge {
 public:
  // Without rates nothing is refused.
  void SetRates(const MeasuredRates& rates) { rates_ = rates; }
  const MeasuredRates& rates() const { return rates_; }

  // Takes the refused ones out of the queue, of those that came since the last call. Each sequence
  // is judged once, and not at all if another engine began it.
  std::vector<EndedSequence> TakeRefused(absl::Duration now, AdmissionQueue* waiting);

  // Whether a sequence can have its first token within `left`, when `ahead` others are certainly
  // planned before it. DEADLINE_EXCEEDED: not on an idle engine either; RESOURCE_EXHAUSTED, with a
  // base::RetryAfterOf hint: not with this queue.
  absl::Status Judge(Sequence* sequence, absl::Duration left, int64_t ahead) const;

  int64_t refusals() const { return refusals_; }  // total
  int64_t looks() const { return looks_; }        // at sequences, total

 private:
  absl::Duration PromptTime(const Sequence& sequence, int64_t cached) const;

  MeasuredRates rates_;
  int64_t refusals_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_DEADLINE_JUDGE_H_
