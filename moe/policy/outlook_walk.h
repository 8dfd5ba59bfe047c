// OutlookWalk: from the chances of a use at each coming forward to when a slot is best given up.
#ifndef TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_
#define TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::moe {

// Thread-compatible. Goes through coming forwards, each of which uses an expert with some chance if
// none has before, and finds the number of forwards for which holding a slot for it gains most: the
// chance of a use, which is worth 1, less the price of the slot for the mean time until then.
// Arrays are [stride], whole vectors of experts; of those past `count`, rounded up to a whole
// vector, nothing is computed.
class OutlookWalk {
 public:
  explicit OutlookWalk(int stride);

  // Of `count` experts; price: of a slot, in uses per forward. due[i]: forward that has a chance of
  // its own, due_chances[i]; -1: none has.
  void Begin(int count, float price, absl::Span<const int32_t> due,
             absl::Span<const float> due_chances);

  // Forwards `begin` to `end`, which is not one of them, all have these chances. An interval that
  // begins at a due forward has those of the interval before; alone, it has no other.
  void Advance(int begin, int end, absl::Span<const float> chances);

  // Of a use before the slot is given up, which takes so many forwards after the next, on average.
  const std::vector<float>& chance() const { return chance_; }
  const std::vector<float>& forwards() const { return forwards_; }

 private:
  size_t count_ = 0;
  float price_ = 0;
  std::vector<float> due_;  // as numbers
  std::vector<float> due_chances_;
  std::vector<float> usual_;     // chances of the last interval that was not due
  std::vector<float> unused_;    // chance of no use so far
  std::vector<float> waited_;    // forwards so far, on average
  std::vector<float> best_;      // gain
  std::vector<float> chance_;    // at the best gain
  std::vector<float> forwards_;  // likewise
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_OUTLOOK_WALK_H_
