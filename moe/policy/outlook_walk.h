// OutlookWalk: from the chances of a use at each coming forward to when a slot is best given up.
#ifndef TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_
#define TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::moe {

// Thread-compatible. Goes through coming forwards, each of which uses an expert with some chance if
// none has before, and finds the number of forwards after which holding a slot for it has had the
// best ratio of the chance of a use to the mean time until then: Gittins' index of a job that is
// worth 1 when it ends. Arrays are [stride], whole vectors of experts; of those past `count`,
// rounded up to a whole vector, nothing is computed.
class OutlookWalk {
 public:
  explicit OutlookWalk(int stride);

  // Of `count` experts. due[i]: forward that has a chance of its own, due_chances[i]; -1: none has.
  void Begin(int count, absl::Span<const int32_t> due, absl::Span<const float> due_chances);

  // Forwards `begin` to `end`, which is not one of them, all have these chances. An interval that
  // begins at a due forward has those of the interval before; alone, it has no other.
  void Advance(int begin, int end, absl::Span<const float> chances);

  // Of a use before the slot is given up, which takes so many forwards after the next, on average.
  const std::vector<float>& chance() const { return chance_; }
  const std::vector<float>& forwards() const { return forwards_; }

 private:
  size_t count_ = 0;
  std::vector<float> due_;  // as numbers
  std::vector<float> due_chances_;
  std::vector<float> usual_;     // chances of the last interval that was not due
  std::vector<float> unused_;    // chance of no use so far
  std::vector<float> waited_;    // forwards so far, on average
  std::vector<float> best_;      // ratio
  std::vector<float> chance_;    // at the best ratio
  std::vector<float> forwards_;  // likewise
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_
