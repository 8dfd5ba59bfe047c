// DeadlineJudge: refuses sequences that cannot have their first token before their deadline, before
// they use resources. It only counts half of the time that the measured rates suggest, because
// those come from other work.
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
  // Without rates, no sequence is refused.
  void SetRates(const MeasuredRates& rates) { rates_ = rates; }
  const MeasuredRates& rates() const { return rates_; }

  // Removes the refused sequences from the queue, among those that arrived since the last call.
  // Each sequence is checked once. One that another engine began is not checked.
  std::vector<EndedSequence> TakeRefused(absl::Duration now, AdmissionQueue* waiting);

  // Checks whether a sequence can have its first token within `left`, if `ahead` others are
  // certainly planned before it. DEADLINE_EXCEEDED if even an idle engine could not.
  // RESOURCE_EXHAUSTED, with a base::RetryAfterOf hint, if only this queue prevents it.
  absl::Status Judge(Sequence* sequence, absl::Duration left, int64_t ahead) const;

  int64_t refusals() const { return refusals_; }  // total
  int64_t looks() const { return looks_; }        // total number of sequences examined

 private:
  absl::Duration PromptTime(const Sequence& sequence, int64_t cached) const;

  MeasuredRates rates_;
  int64_t refusals_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_DEADLINE_JUDGE_H_
