// DeadlineJudge: refuses sequences that cannot have their first token before their deadline, so
// that they use no resources. It assumes only half of the time that the measured rates suggest,
// because the rates were measured on other work.
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
  // As long as there are no rates, no sequence is refused.
  void SetRates(const MeasuredRates& rates) { rates_ = rates; }
  const MeasuredRates& rates() const { return rates_; }

  // Checks the sequences that arrived since the last call. Removes the refused sequences from the
  // queue, and returns them. Each sequence is checked once. A sequence with output tokens of an
  // earlier attempt is not checked.
  std::vector<EndedSequence> TakeRefused(absl::Duration now, AdmissionQueue* waiting);

  // Checks whether a sequence can have its first token within `left`. `ahead` is the number of
  // sequences that are certainly planned before it. Returns DEADLINE_EXCEEDED if even an idle
  // engine would take longer, and RESOURCE_EXHAUSTED, with a base::RetryAfterOf hint, if only the
  // queue prevents it.
  absl::Status Judge(Sequence* sequence, absl::Duration left, int64_t ahead) const;

  int64_t refusals() const { return refusals_; }  // total since the start
  int64_t looks() const { return looks_; }        // total number of sequences examined

 private:
  absl::Duration PromptTime(const Sequence& sequence, int64_t cached) const;

  MeasuredRates rates_;
  int64_t refusals_ = 0;
  int64_t looks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_DEADLINE_JUDGE_H_
