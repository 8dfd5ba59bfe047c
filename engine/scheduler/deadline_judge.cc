#include "engine/scheduler/deadline_judge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/scheduler/admission_turns.h"
#include "kernels/base/retry_after.h"

namespace tidepool::engine {
namespace {

constexpr double kCertainShare = 0.5;  // the share of the measured time that is certainly needed

std::string InMilliseconds(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(1)));
}

}  // namespace

std::vector<EndedSequence> DeadlineJudge::TakeRefused(absl::Duration now, AdmissionQueue* waiting) {
  const SequenceQueue& queue = waiting->sequences();
  if (std::all_of(queue.begin(), queue.end(),
                  [](const auto& known) { return known->admission.judged; })) {
    return {};
  }
  QueueAheadCounter ahead;
  const auto judge = [&](Sequence* sequence) {
    ++looks_;
    absl::Status status;
    if (!std::exchange(sequence->admission.judged, true) && sequence->outputs() == 0 &&
        sequence->request.deadline != absl::InfiniteDuration()) {
      status = Judge(sequence, sequence->request.deadline - now, ahead.Of(*sequence));
    }
    if (status.ok()) ahead.Show(*sequence);
    return status;
  };
  std::vector<EndedSequence> refused = waiting->TakeFailed(judge);
  refusals_ += static_cast<int64_t>(refused.size());
  return refused;
}

// Returns the minimum time to compute the prompt after its first `cached` tokens.
absl::Duration DeadlineJudge::PromptTime(const Sequence& sequence, int64_t cached) const {
  if (rates_.prompt_rows_per_second <= 0) return absl::ZeroDuration();
  const auto rows = static_cast<double>(static_cast<int64_t>(sequence.tokens.size()) - cached);
  return absl::Seconds(kCertainShare * rows / rates_.prompt_rows_per_second);
}

absl::Status DeadlineJudge::Judge(Sequence* sequence, absl::Duration left, int64_t ahead) const {
  absl::Duration queue;
  if (ahead > 0 && rates_.admissions_per_second > 0) {
    queue =
        absl::Seconds(kCertainShare * static_cast<double>(ahead) / rates_.admissions_per_second);
  }
  // A lookup in the cache must hash the prompt. So the lookup is only made if its result matters.
  if (queue + PromptTime(*sequence, /*cached=*/0) <= left) return absl::OkStatus();
  const absl::Duration own =
      PromptTime(*sequence, sequence->lease.FindPrefix(sequence->reusable()).tokens);
  if (own > left) {
    return absl::DeadlineExceededError(
        absl::StrCat("refused: the deadline is in ", InMilliseconds(left), ", and a prompt of ",
                     sequence->tokens.size(), " tokens takes at least ", InMilliseconds(own),
                     "; set a longer deadline"));
  }
  if (queue + own <= left) return absl::OkStatus();
  const absl::Duration hint = std::min(queue, base::kLongestRetryAfter);
  return base::WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                  "refused at once: the deadline is in ", InMilliseconds(left),
                                  ", and the ", ahead, " requests ahead of this one take at least ",
                                  InMilliseconds(hint), "; retry later, or set a longer deadline")),
                              hint);
}

}  // namespace tidepool::engine
